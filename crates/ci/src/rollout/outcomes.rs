//! The outcomes of stacks that must wait for their rollout, and the events of rollouts.

use std::collections::BTreeMap;

use jiff::Timestamp;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, NotifyEvent, RepoPath, StackId,
        apply_result::{StackOutcome, StackResult, WaitReason, Waiting},
        rollout::{RolloutPhase, RolloutRecord},
    },
};
use konverge_run::{Target, apply};

/// The reason why a rollout waits.
#[derive(Debug, Clone)]
pub(super) struct RolloutWait {
    pub reason: WaitReason,
    pub until: Option<Timestamp>,
    pub why: String,
}

/// The event that a rollout stopped in this run.
pub(crate) struct RolloutEvent {
    /// The kind of event.
    pub topic: NotifyEvent,
    /// The stacks that are rolled back, or would be rolled back.
    pub stacks: Vec<(StackId, RepoPath)>,
}

impl RolloutEvent {
    /// Returns the event of a new record, if there is a notification for it. `failed` are the stacks that failed
    /// before.
    pub(super) fn from_records(
        before: &RolloutRecord,
        after: &RolloutRecord,
        failed: &BTreeMap<StackId, String>,
    ) -> Option<Self> {
        let is_rolled_back = || !before.failing().any(|(id, _)| failed.contains_key(id));
        let topic = match (before.phase, after.phase) {
            (RolloutPhase::RollingBack, RolloutPhase::Stopped) if is_rolled_back() => NotifyEvent::RolledBack,
            (RolloutPhase::Stopped, _) => return None,
            (_, RolloutPhase::Stopped | RolloutPhase::RollingBack) => NotifyEvent::RolloutFailed,
            _ => return None,
        };
        Some(Self {
            topic,
            stacks: after
                .failing()
                .map(|(id, stack)| (id.clone(), stack.folder.clone()))
                .collect(),
        })
    }
}

/// Returns true if a rollout applies these inputs to a stack.
pub(super) fn carries(record: &RolloutRecord, id: &StackId, input: Option<Digest>) -> bool {
    let mut stacks = record.stacks();
    stacks.any(|(_, other, stack)| other == id && stack.input == input)
}

/// Returns the outcome of a pending stack with a change that failed, or was aborted, in an earlier rollout.
pub(super) fn held_outcome(target: &Target, record: &RolloutRecord) -> StackOutcome {
    let name = &record.rollout;
    let ended = match record.phase {
        RolloutPhase::Aborted if record.stacks().any(|(_, id, _)| *id == target.id) => "was aborted",
        _ => "failed",
    };
    let failure = UserError::new(
        ErrorKind::Policy,
        format!(
            "the rollout `{name}` {ended} with this change of {}, so it is not applied again",
            target.id
        ),
    )
    .hint("merge another change to a stack of the rollout to start a new one")
    .hint(format!(
        "or run `konverge rollout resume {name}` after the rollout has ended: the stack may then be applied"
    ));
    apply::stopped_outcome(target, StackResult::Stopped, &failure)
}

/// Returns the outcome of a pending stack that was removed from the configuration of a rollout under way.
pub(super) fn left_rollout_outcome(target: &Target, record: &RolloutRecord) -> StackOutcome {
    let name = &record.rollout;
    let failure = UserError::new(
        ErrorKind::Policy,
        format!(
            "the rollout `{name}` of {} is under way ({}, {}), and konverge.yaml no longer has {} in it: the stack waits for the end of that rollout",
            record.commit.short(),
            record.wave_title(),
            record.phase,
            target.id
        ),
    )
    .hint(format!(
        "to end that rollout, run `konverge rollout abort {name}`: the next run then applies the stack"
    ))
    .hint("or put the stack back into the waves of the rollout, which then goes on");
    apply::stopped_outcome(target, StackResult::Stopped, &failure)
}

/// Returns the outcome of a pending stack that this run did not apply because of its rollout.
pub(super) fn waiting_outcome(
    target: &Target,
    input: Option<Digest>,
    record: &RolloutRecord,
    wait: Option<&RolloutWait>,
) -> StackOutcome {
    let name = &record.rollout;
    let carried = record
        .stacks()
        .find(|(_, id, stack)| **id == target.id && stack.input == input);
    // A stopped rollout needs a person, so its stacks count as stopped and not as waiting.
    if record.phase == RolloutPhase::Stopped {
        let failure = UserError::new(
            ErrorKind::Policy,
            format!(
                "the rollout `{name}` of {} has stopped in {}: {}",
                record.commit.short(),
                record.wave_title(),
                record.why
            ),
        )
        .hint(format!(
            "run `konverge rollout resume {name}` to try the wave again, or `konverge rollout abort {name}` to end the rollout"
        ))
        .hint("a merge that changes these stacks again starts a new rollout, if this one has failed");
        return apply::stopped_outcome(target, StackResult::Stopped, &failure);
    }
    let (waiting, why) = match (carried, wait) {
        // The stack is in the current wave, so it waits for the same reason as the rollout.
        (Some((wave, ..)), Some(wait)) if wave == record.wave => {
            let waiting = Waiting {
                reason: wait.reason,
                until: wait.until,
                wave: Some(wave + 1),
            };
            (waiting, wait.why.clone())
        }
        // The stack is in a later wave. It waits for that wave, unless a person must act first.
        (Some((wave, ..)), wait) => {
            let waiting = Waiting {
                reason: match wait {
                    Some(wait) if matches!(wait.reason, WaitReason::Approval | WaitReason::Resume) => {
                        wait.reason
                    }
                    _ => WaitReason::Wave,
                },
                until: wait.and_then(|wait| wait.until),
                wave: Some(wave + 1),
            };
            let now = wait.map_or_else(|| record.phase.to_string(), |wait| wait.why.clone());
            (
                waiting,
                format!(
                    "its wave is {} of {}; {}: {now}",
                    wave + 1,
                    record.waves.len(),
                    record.wave_title()
                ),
            )
        }
        // The rollout applies an older change, so this change of the stack comes with the next rollout.
        (None, wait) => {
            let waiting = Waiting {
                reason: WaitReason::Wave,
                until: wait.and_then(|wait| wait.until),
                wave: None,
            };
            (
                waiting,
                format!(
                    "queued: the rollout carries an older change, and is in {}",
                    record.wave_title()
                ),
            )
        }
    };
    let said = UserError::new(
        ErrorKind::Policy,
        format!("behind the rollout `{name}` of {}: {why}", record.commit.short()),
    );
    StackOutcome {
        waiting: Some(waiting),
        ..apply::stopped_outcome(target, StackResult::Waiting, &said)
    }
}

#[cfg(test)]
mod tests {
    use konverge_base::model::rollout::{ClockReading, RolloutStack};

    use super::*;

    fn record(phase: RolloutPhase) -> RolloutRecord {
        let wave = |id: &str| {
            let stack = RolloutStack {
                folder: RepoPath::root(),
                input: None,
                before: None,
            };
            BTreeMap::from([(id.parse().unwrap(), stack)])
        };
        let since = ClockReading {
            local: Timestamp::UNIX_EPOCH,
            server: None,
        };
        let commit = "a".repeat(40).parse().unwrap();
        let waves = vec![wave("a/canary"), wave("a/eu"), wave("a/us")];
        RolloutRecord {
            phase,
            begun_waves: 2,
            ..RolloutRecord::at_start("web", commit, Digest::of_bytes(b"rules"), waves, since)
        }
    }

    #[test]
    fn an_event_names_every_stack_that_is_rolled_back_and_a_failed_rollback_is_none() {
        use RolloutPhase::{Applying, RollingBack, Stopped};
        let event = |before, after, failed: &[&str]| {
            let failed = failed.iter().map(|id| (id.parse().unwrap(), "no".to_owned()));
            let event = RolloutEvent::from_records(&record(before), &record(after), &failed.collect())?;
            let stacks = event.stacks.iter().map(|(id, _)| id.to_string());
            Some((event.topic, stacks.collect::<Vec<_>>().join(" ")))
        };
        let told = |topic| Some((topic, "a/canary a/eu".to_owned()));
        assert_eq!(
            event(Applying, RollingBack, &["a/canary"]),
            told(NotifyEvent::RolloutFailed)
        );
        assert_eq!(event(RollingBack, Stopped, &[]), told(NotifyEvent::RolledBack));
        assert_eq!(
            event(RollingBack, Stopped, &["a/eu"]),
            told(NotifyEvent::RolloutFailed)
        );
        assert_eq!(event(Stopped, Applying, &[]), None);
    }
}
