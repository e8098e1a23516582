//! The outcomes of pending stacks that must wait for their rollout.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, RepoPath, StackId,
        apply_result::{StackOutcome, StackResult, WaitReason, Waiting},
        rollout::{RolloutPhase, RolloutRecord},
    },
};

use super::step::RolloutWait;

/// Returns true if a rollout applies these inputs to a stack.
pub fn carries(record: &RolloutRecord, id: &StackId, input: Option<Digest>) -> bool {
    let mut stacks = record.stacks();
    stacks.any(|(_, other, stack)| other == id && stack.input == input)
}

/// Returns the outcome of a pending stack with a change that failed, or was aborted, in an earlier rollout.
pub fn held_outcome(stack: &StackId, folder: &RepoPath, record: &RolloutRecord) -> StackOutcome {
    let name = &record.rollout;
    let ended = match record.phase {
        RolloutPhase::Aborted if record.stacks().any(|(_, id, _)| id == stack) => "was aborted",
        _ => "failed",
    };
    let failure = UserError::new(
        ErrorKind::Policy,
        format!("the rollout `{name}` {ended} with this change of {stack}, so it is not applied again"),
    )
    .hint("merge another change to a stack of the rollout to start a new one")
    .hint(format!(
        "or run `konverge rollout resume {name}` after the rollout has ended: the stack may then be applied"
    ));
    StackOutcome::not_changed(stack, folder, StackResult::Stopped, &failure)
}

/// Returns the outcome of a pending stack that was removed from the configuration of a rollout under way.
pub fn left_rollout_outcome(stack: &StackId, folder: &RepoPath, record: &RolloutRecord) -> StackOutcome {
    let name = &record.rollout;
    let failure = UserError::new(
        ErrorKind::Policy,
        format!(
            "the rollout `{name}` of {} is under way ({}, {}), and konverge.yaml no longer has {stack} in its waves: the stack waits for the end of that rollout",
            record.commit.short(),
            record.wave_title(),
            record.phase
        ),
    )
    .hint(format!(
        "to end that rollout, run `konverge rollout abort {name}`: the next run then applies the stack"
    ))
    .hint("or put the stack back into the waves of the rollout, which then goes on");
    StackOutcome::not_changed(stack, folder, StackResult::Stopped, &failure)
}

/// Returns the outcome of a pending stack that this run did not apply because of its rollout.
pub fn waiting_outcome(
    stack: &StackId,
    folder: &RepoPath,
    input: Option<Digest>,
    record: &RolloutRecord,
    wait: Option<&RolloutWait>,
) -> StackOutcome {
    let name = &record.rollout;
    let carried = record
        .stacks()
        .find(|(_, id, carried)| *id == stack && carried.input == input);
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
        return StackOutcome::not_changed(stack, folder, StackResult::Stopped, &failure);
    }
    let (reason, wave, why) = match (carried, wait) {
        // The stack is in the current wave, so it waits for the same reason as the rollout.
        (Some((wave, ..)), Some(wait)) if wave == record.wave => {
            (wait.reason, Some(wave + 1), wait.why.clone())
        }
        // The stack is in a later wave. It waits for that wave, unless a person must act first.
        (Some((wave, ..)), wait) => {
            let reason = wait.map(|wait| wait.reason);
            let reason = reason.filter(|reason| matches!(reason, WaitReason::Approval | WaitReason::Resume));
            let now = wait.map_or_else(|| record.phase.to_string(), |wait| wait.why.clone());
            let why = format!(
                "its wave is {} of {}; {}: {now}",
                wave + 1,
                record.waves.len(),
                record.wave_title()
            );
            (reason.unwrap_or(WaitReason::Wave), Some(wave + 1), why)
        }
        // The rollout applies an older change, so this change of the stack comes with the next rollout.
        (None, _) => {
            let why = format!(
                "queued: the rollout carries an older change, and is in {}",
                record.wave_title()
            );
            (WaitReason::Wave, None, why)
        }
    };
    let waiting = Waiting {
        reason,
        until: wait.and_then(|wait| wait.until),
        wave,
    };
    let reason = UserError::new(
        ErrorKind::Policy,
        format!("behind the rollout `{name}` of {}: {why}", record.commit.short()),
    );
    StackOutcome {
        waiting: Some(waiting),
        ..StackOutcome::not_changed(stack, folder, StackResult::Waiting, &reason)
    }
}
