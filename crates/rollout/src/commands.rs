//! The commands of a person to a rollout: pause, resume, abort.

use konverge_base::model::rollout::{ClockReading, RolloutPhase, RolloutRecord};

/// Command of a person to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutCommand {
    /// Stops the rollout where it is until it is resumed.
    Pause,
    /// Continues a paused rollout where it was, and a stopped one with the wave that failed.
    Resume,
    /// Ends the rollout, and holds its commit: no later rollout brings the same contents.
    Abort,
}

/// Reasons why a rollout does not accept a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RolloutCommandError {
    /// The rollout has ended.
    #[error("it has ended")]
    Over,
    /// The rollout is paused already.
    #[error("it is paused already")]
    Paused,
    /// The rollout neither stopped nor is it paused.
    #[error("it is not paused and has not stopped")]
    Running,
    /// A rollback runs.
    #[error("it is rolling back; it can be resumed or aborted when that has ended")]
    RollingBack,
}

/// Returns the record after a command of a person.
///
/// # Errors
/// The command makes no sense for the rollout as it is.
pub fn command(
    record: &RolloutRecord,
    command: RolloutCommand,
    why: &str,
    now: ClockReading,
) -> Result<RolloutRecord, RolloutCommandError> {
    let changed = RolloutRecord {
        since: now,
        why: why.to_owned(),
        unready_since: Default::default(),
        ..record.clone()
    };
    match (command, record.phase) {
        // The rollout is over, and a change is held that failed before it.
        (RolloutCommand::Resume, phase) if phase.is_over() && !record.held.is_empty() => Ok(RolloutRecord {
            held: Default::default(),
            ..changed
        }),
        (_, phase) if phase.is_over() => Err(RolloutCommandError::Over),
        (_, RolloutPhase::RollingBack) => Err(RolloutCommandError::RollingBack),
        // Or the next run, which may wait for the bake already, would begin again with the same commit.
        (RolloutCommand::Abort, _) => Ok(RolloutRecord {
            phase: RolloutPhase::Aborted,
            paused: false,
            held: record.held.iter().cloned().chain(record.contents()).collect(),
            ..changed
        }),
        (RolloutCommand::Pause, _) if record.paused => Err(RolloutCommandError::Paused),
        (RolloutCommand::Pause, RolloutPhase::Stopped) => Err(RolloutCommandError::Paused),
        (RolloutCommand::Pause, _) => Ok(RolloutRecord {
            paused: true,
            ..changed
        }),
        (RolloutCommand::Resume, RolloutPhase::Stopped) => Ok(resumed(record, changed)),
        (RolloutCommand::Resume, _) if record.paused => Ok(RolloutRecord {
            paused: false,
            // An approval from before the pause does not count: the gates ask again.
            planned: Default::default(),
            ..changed
        }),
        (RolloutCommand::Resume, _) => Err(RolloutCommandError::Running),
    }
}

/// A stopped rollout applies its wave again. If its plans were approved, they must be approved again.
fn resumed(record: &RolloutRecord, changed: RolloutRecord) -> RolloutRecord {
    let (wave, phase) = match record.wave.checked_sub(1) {
        Some(before) if !record.approved_now().is_empty() => (before, RolloutPhase::Gate),
        _ => (record.wave, RolloutPhase::Applying),
    };
    RolloutRecord {
        wave,
        phase,
        paused: false,
        approved: record.other_approvals(),
        planned: Default::default(),
        ready: Default::default(),
        held: record.held_without_own(),
        measured: Default::default(),
        ..changed
    }
}
