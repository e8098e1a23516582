//! [`StackCondition`]: how a stack stands, for `konverge status` and the portal. One stack may have several; the worst
//! decides its place.

use jiff::Timestamp;
use serde::Serialize;

use super::apply_result::StackResult;

/// How a stack stands, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackCondition {
    /// The last apply failed.
    Failed,
    /// The state cannot be read.
    Unreadable,
    /// The last apply was stopped by a review, a policy, a freeze or a lease.
    Stopped,
    /// A run works on the stack, or died while it did.
    Open,
    /// The last apply skipped the stack, because one that it depends on failed or waits.
    HeldBack,
    /// The live infrastructure differs from what was applied.
    Drifted,
    /// The head differs from what was applied.
    Pending,
    /// The head no longer has the stack, and resources of it are recorded.
    Removed,
    /// The head has the stack, and nothing was applied.
    NeverApplied,
    /// Everything that could be done is done, and the rest waits.
    Waiting,
    /// The stack is as it was applied.
    Applied,
    /// Destroyed after it was applied.
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

    /// The condition as it stands in JSON and in addresses.
    pub fn key(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
            Self::Stopped => "stopped",
            Self::Open => "open",
            Self::HeldBack => "held-back",
            Self::Drifted => "drifted",
            Self::Pending => "pending",
            Self::Removed => "removed",
            Self::NeverApplied => "never-applied",
            Self::Waiting => "waiting",
            Self::Applied => "applied",
            Self::Destroyed => "destroyed",
        }
    }

    /// The condition of a key.
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.key() == key)
    }

    /// The words on a page.
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

/// A stack of the state, compared with the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadFact {
    /// Nobody compared: there is no repository here.
    #[default]
    Unknown,
    /// The head has the stack, with the inputs that were applied.
    Same,
    /// The head has the stack, with other inputs.
    Changed,
    /// The head does not have the stack, and the next run destroys it.
    Removed,
    /// The head does not have the stack, and no run touches it.
    Kept,
}

/// The facts from which the conditions of a stack follow.
#[derive(Debug, Clone, Default)]
pub struct StackFacts {
    /// True if something was ever recorded.
    pub recorded: bool,
    /// True if the state cannot be read.
    pub unreadable: bool,
    /// True if a run works on the stack or died, and no apply ended since.
    pub open: bool,
    /// True if the stack was destroyed, moved away or forgotten.
    pub retired: bool,
    /// True if the last apply completed, so that its inputs are recorded.
    pub settled: bool,
    /// When the state was written, and how the apply ended.
    pub written: Option<(Timestamp, Option<StackResult>)>,
    /// The last apply that ended before it wrote a state.
    pub stopped: Option<(Timestamp, StackResult)>,
    /// When drift was found, if it was.
    pub drift_checked: Option<Timestamp>,
    /// The stack at the head.
    pub head: HeadFact,
}

impl StackFacts {
    /// The conditions, the worst first; at least one.
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
        // While a run works on the stack, the result before it says nothing any more.
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
        // An apply removes drift, so only a check after it counts.
        if !self.retired
            && self
                .drift_checked
                .is_some_and(|at| written.is_none_or(|written| at >= written))
        {
            found.push(StackCondition::Drifted);
        }
        // The next run takes such a stack up in any case: *pending* would add nothing.
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
            assert_eq!(StackCondition::from_key(condition.key()), Some(condition));
            assert_eq!(serde_json::to_value(condition).unwrap(), condition.key());
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
