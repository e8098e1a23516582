//! [`StackCondition`]: the condition of a stack, for `konverge status` and the portal. A stack may have several
//! conditions; lists are sorted by the worst one.

use derive_more::Display;
use jiff::Timestamp;
use serde::Serialize;

use super::apply_result::StackResult;

/// The condition of a stack, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display)]
#[display(rename_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum StackCondition {
    /// The last apply failed.
    Failed,
    /// The state cannot be read.
    Unreadable,
    /// The last apply was stopped by a review, a policy, a freeze or a lease.
    Stopped,
    /// A run works on the stack now, or was killed while it did.
    Open,
    /// The last apply skipped the stack, because a stack that it depends on failed or waits.
    HeldBack,
    /// The live infrastructure differs from the last apply.
    Drifted,
    /// The head of the repository differs from the last apply.
    Pending,
    /// The head of the repository no longer has the stack, but its state still has resources.
    Removed,
    /// The head of the repository has the stack, and it was never applied.
    NeverApplied,
    /// Everything that could be applied is applied, and the rest waits for an event outside of the run.
    Waiting,
    /// The last apply is up to date.
    Applied,
    /// The stack was destroyed after it was applied.
    Destroyed,
}

impl StackCondition {
    /// Returns true if the last apply did not end well, or has not ended.
    pub fn is_of_apply(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped | Self::Open | Self::HeldBack)
    }

    /// All conditions, the worst first.
    pub const ALL: [Self; 12] = [
        Self::Failed,
        Self::Unreadable,
        Self::Stopped,
        Self::Open,
        Self::HeldBack,
        Self::Drifted,
        Self::Pending,
        Self::Removed,
        Self::NeverApplied,
        Self::Waiting,
        Self::Applied,
        Self::Destroyed,
    ];

    /// Returns the condition with this name; `None` for any other text.
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|condition| condition.to_string() == key)
    }

    /// Returns the words for the condition on a page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Failed => "last apply failed",
            Self::Unreadable => "state unreadable",
            Self::Stopped => "last apply stopped",
            Self::Open => "running or interrupted",
            Self::HeldBack => "held back",
            Self::Drifted => "drifted",
            Self::Pending => "changes pending",
            Self::Removed => "removed from the repository",
            Self::NeverApplied => "never applied",
            Self::Waiting => "waiting",
            Self::Applied => "as applied",
            Self::Destroyed => "destroyed",
        }
    }
}

/// The comparison of a recorded stack with the head of the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadFact {
    /// There was no comparison, because there is no repository here.
    #[default]
    Unknown,
    /// The head has the stack, with the inputs that were applied.
    Same,
    /// The head has the stack, with other inputs.
    Changed,
    /// The head no longer has the stack, and the next run destroys it.
    Removed,
    /// The head does not have the stack, and no run changes it.
    Kept,
}

/// The facts that decide the conditions of a stack.
#[derive(Debug, Clone, Default)]
pub struct StackFacts {
    /// True if the stack has a state.
    pub recorded: bool,
    /// True if the state cannot be read.
    pub unreadable: bool,
    /// True if a run works on the stack or was killed, and no apply has ended since.
    pub open: bool,
    /// True if the stack was destroyed, moved away or forgotten.
    pub retired: bool,
    /// True if the last apply completed, so that its inputs are recorded.
    pub settled: bool,
    /// The time at which the state was written, and the result of that apply.
    pub written: Option<(Timestamp, Option<StackResult>)>,
    /// The last apply that ended without writing a state.
    pub stopped: Option<(Timestamp, StackResult)>,
    /// The time at which drift was found, if there is any.
    pub drift_checked: Option<Timestamp>,
    /// The comparison with the head.
    pub head: HeadFact,
}

impl StackFacts {
    /// Returns the conditions, the worst first; at least one.
    pub fn conditions(&self) -> Vec<StackCondition> {
        let mut found = Vec::new();
        let written = self.written.map(|(at, _)| at);
        let result = match (self.stopped, self.written) {
            (Some((at, result)), written) if written.is_none_or(|(written, _)| at > written) => Some(result),
            (_, Some((_, result))) if !self.retired => result,
            _ => None,
        };
        if self.unreadable {
            found.push(StackCondition::Unreadable);
        }
        // While a run works on the stack, the result of the apply before it is out of date.
        if self.open {
            found.push(StackCondition::Open);
        } else {
            match result {
                Some(StackResult::Failed) => found.push(StackCondition::Failed),
                Some(StackResult::Stopped) => found.push(StackCondition::Stopped),
                Some(StackResult::HeldBack) => found.push(StackCondition::HeldBack),
                Some(StackResult::Waiting) => found.push(StackCondition::Waiting),
                Some(StackResult::Applied | StackResult::Unchanged) | None => {}
            }
        }
        // An apply removes drift, so only a drift check after the last apply counts.
        if !self.retired
            && self
                .drift_checked
                .is_some_and(|at| written.is_none_or(|written| at >= written))
        {
            found.push(StackCondition::Drifted);
        }
        // The next run applies such a stack in any case, so *pending* would tell nothing new.
        let is_retried = found.iter().any(|condition| {
            matches!(
                condition,
                StackCondition::Failed | StackCondition::Open | StackCondition::Waiting
            )
        });
        match (self.head, self.recorded && !self.retired) {
            (HeadFact::Changed | HeadFact::Same, false) if !self.retired => {
                found.push(StackCondition::NeverApplied)
            }
            (HeadFact::Changed, _) if !is_retried => found.push(StackCondition::Pending),
            (HeadFact::Removed, _) => found.push(StackCondition::Removed),
            (HeadFact::Unknown, true) if !self.settled && !self.unreadable && found.is_empty() => {
                found.push(StackCondition::Pending);
            }
            _ => {}
        }
        if found.is_empty() {
            found.push(if self.retired {
                StackCondition::Destroyed
            } else {
                StackCondition::Applied
            });
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn applied() -> StackFacts {
        StackFacts {
            recorded: true,
            settled: true,
            written: Some((at(10), Some(StackResult::Applied))),
            head: HeadFact::Same,
            ..StackFacts::default()
        }
    }

    #[test]
    fn keys_and_order_are_one() {
        let mut sorted = StackCondition::ALL;
        sorted.sort_unstable();
        assert_eq!(sorted, StackCondition::ALL);
        for condition in StackCondition::ALL {
            assert_eq!(StackCondition::from_key(&condition.to_string()), Some(condition));
            assert_eq!(serde_json::to_value(condition).unwrap(), condition.to_string());
        }
    }

    #[test]
    fn a_stack_has_the_conditions_that_follow() {
        let changed = StackFacts {
            settled: false,
            head: HeadFact::Changed,
            ..applied()
        };
        let failed = Some((at(10), Some(StackResult::Failed)));
        for (facts, expected) in [
            (applied(), vec![StackCondition::Applied]),
            (
                StackFacts {
                    head: HeadFact::Unknown,
                    ..applied()
                },
                vec![StackCondition::Applied],
            ),
            (
                StackFacts {
                    written: failed,
                    ..changed.clone()
                },
                vec![StackCondition::Failed],
            ),
            // What was stopped later counts, and what was stopped earlier does not.
            (
                StackFacts {
                    stopped: Some((at(11), StackResult::Stopped)),
                    ..changed.clone()
                },
                vec![StackCondition::Stopped, StackCondition::Pending],
            ),
            (
                StackFacts {
                    stopped: Some((at(9), StackResult::Stopped)),
                    ..applied()
                },
                vec![StackCondition::Applied],
            ),
            (
                StackFacts {
                    stopped: Some((at(11), StackResult::HeldBack)),
                    ..changed.clone()
                },
                vec![StackCondition::HeldBack, StackCondition::Pending],
            ),
            (
                StackFacts {
                    drift_checked: Some(at(11)),
                    ..applied()
                },
                vec![StackCondition::Drifted],
            ),
            (
                StackFacts {
                    drift_checked: Some(at(9)),
                    ..applied()
                },
                vec![StackCondition::Applied],
            ),
            (
                StackFacts {
                    open: true,
                    ..changed.clone()
                },
                vec![StackCondition::Open],
            ),
            (
                StackFacts {
                    head: HeadFact::Changed,
                    ..StackFacts::default()
                },
                vec![StackCondition::NeverApplied],
            ),
            (
                StackFacts {
                    head: HeadFact::Removed,
                    ..applied()
                },
                vec![StackCondition::Removed],
            ),
            (
                StackFacts {
                    head: HeadFact::Kept,
                    ..applied()
                },
                vec![StackCondition::Applied],
            ),
            (
                StackFacts {
                    retired: true,
                    head: HeadFact::Kept,
                    ..applied()
                },
                vec![StackCondition::Destroyed],
            ),
            (
                StackFacts {
                    retired: true,
                    head: HeadFact::Changed,
                    ..applied()
                },
                vec![StackCondition::Pending],
            ),
            (
                StackFacts {
                    unreadable: true,
                    ..applied()
                },
                vec![StackCondition::Unreadable],
            ),
            (
                StackFacts {
                    settled: false,
                    head: HeadFact::Unknown,
                    ..applied()
                },
                vec![StackCondition::Pending],
            ),
            (
                StackFacts {
                    stopped: Some((at(5), StackResult::Failed)),
                    head: HeadFact::Changed,
                    ..StackFacts::default()
                },
                vec![StackCondition::Failed, StackCondition::NeverApplied],
            ),
        ] {
            assert_eq!(facts.conditions(), expected, "{facts:?}");
        }
    }
}
