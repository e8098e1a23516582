//! The commands of a person to a rollout: pause, resume, abort.

use konverge_base::model::rollout::{ClockReading, RolloutPhase, RolloutRecord};

/// A command that a person gives to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutCommand {
    /// Stops the rollout where it is until it is resumed.
    Pause,
    /// Continues a paused rollout where it was, and a stopped one with the wave that failed.
    Resume,
    /// Ends the rollout and holds its contents: no later rollout applies the same contents.
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

/// Applies a command to a rollout and returns the changed record.
///
/// # Errors
/// The rollout does not accept the command in its present phase.
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
        // After a rollout is over, a resume releases the contents that it holds.
        (RolloutCommand::Resume, phase) if phase.is_over() && !record.held.is_empty() => Ok(RolloutRecord {
            held: Default::default(),
            ..changed
        }),
        (_, phase) if phase.is_over() => Err(RolloutCommandError::Over),
        (_, RolloutPhase::RollingBack) => Err(RolloutCommandError::RollingBack),
        // The contents are held, because otherwise the next run would begin a new rollout with the same commit.
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

/// Resumes a stopped rollout: its wave is applied again. If the plans of the wave were approved, the gate asks for
/// a new approval first.
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
