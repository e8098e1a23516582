//! The events of rollouts, for notifications.

use std::collections::BTreeMap;

use konverge_base::model::{
    NotifyEvent, RepoPath, StackId,
    rollout::{RolloutPhase, RolloutRecord},
};

/// The event that a rollout stopped in this run.
pub struct RolloutEvent {
    /// The kind of event.
    pub topic: NotifyEvent,
    /// The stacks that are rolled back, or would be rolled back.
    pub stacks: Vec<(StackId, RepoPath)>,
}

impl RolloutEvent {
    /// Returns the event of a new record, if there is a notification for it. `failed` are the stacks that failed
    /// before.
    pub fn from_records(
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use konverge_base::model::{
        Digest,
        rollout::{ClockReading, RolloutStack},
    };

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
