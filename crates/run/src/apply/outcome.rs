//! Combines the results of the stacks into the result of the whole apply.

use crate::{RunContext, Target};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        authorization::Authorization,
    },
};

/// Returns the outcome of a stack that was not changed, with the reason.
pub fn stopped_outcome(target: &Target, result: StackResult, failure: &UserError) -> StackOutcome {
    StackOutcome {
        stack: target.folder().clone(),
        id: target.id.clone(),
        result,
        digest: Digest::of_set([]),
        serial: None,
        grounds: Authorization::default(),
        waiting: None,
        resources: Vec::new(),
        error: Some(failure.body()),
    }
}

/// Returns the outcome of a stack that was not changed because of an error.
pub(super) fn not_started(target: &Target, failure: &UserError) -> StackOutcome {
    let result = if failure.kind.is_stop() {
        StackResult::Stopped
    } else {
        StackResult::Failed
    };
    stopped_outcome(target, result, failure)
}

/// Returns true if every stack succeeded.
pub fn ended_well(report: &ApplyReport) -> bool {
    report.stacks.iter().all(|stack| has_succeeded(stack.result))
}

/// Returns true if a stack waits, and no stack failed or was stopped.
pub fn only_waits(report: &ApplyReport) -> bool {
    let has = |wanted| report.stacks.iter().any(|stack| stack.result == wanted);
    is_unbroken(report) && has(StackResult::Waiting)
}

/// Returns true if no stack failed or was stopped.
pub fn is_unbroken(report: &ApplyReport) -> bool {
    let mut stacks = report.stacks.iter();
    stacks.all(|stack| !matches!(stack.result, StackResult::Failed | StackResult::Stopped))
}

/// Returns true if the stack is up to date.
pub fn has_succeeded(result: StackResult) -> bool {
    matches!(result, StackResult::Applied | StackResult::Unchanged)
}

/// Returns the exit code of the most severe result: a failure before a stop, a stop before a lease that another run
/// holds. An interrupted run has its own code.
pub fn exit_code(report: &ApplyReport, run: &RunContext) -> u8 {
    if run.cancel.is_cancelled() {
        return ErrorKind::Interrupted.exit_code();
    }
    let code = |outcome: &StackOutcome| match (outcome.result, &outcome.error) {
        (StackResult::Applied | StackResult::Unchanged | StackResult::Waiting, _) => 0,
        (StackResult::Stopped, Some(error)) => error.kind.exit_code(),
        // The stack that this one waits for already has an exit code.
        (StackResult::HeldBack, _) => 0,
        _ => 1,
    };
    let codes: Vec<u8> = report.stacks.iter().map(code).collect();
    [1, 3, 4]
        .into_iter()
        .find(|code| codes.contains(code))
        .unwrap_or(0)
}
