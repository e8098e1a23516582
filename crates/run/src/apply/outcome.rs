//! Combines the results of the stacks into the result of the whole apply.

use crate::{RunContext, Target};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::apply_result::{ApplyReport, StackOutcome, StackResult},
};

/// Returns the outcome of a stack that was not changed, with the reason.
pub fn stopped_outcome(target: &Target, result: StackResult, failure: &UserError) -> StackOutcome {
    StackOutcome::not_changed(&target.id, target.folder(), result, failure)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{run, stack};

    fn report(results: &[(StackResult, ErrorKind)]) -> ApplyReport {
        let stacks = results.iter().enumerate().map(|(at, (result, kind))| {
            let target = Target::new(&stack(&format!("shop/s{at}")), None);
            stopped_outcome(&target, *result, &UserError::new(*kind, "why"))
        });
        ApplyReport {
            version: 1,
            stacks: stacks.collect(),
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_most_severe_result() {
        use StackResult::{Applied, Failed, HeldBack, Stopped, Unchanged, Waiting};
        let fine = ErrorKind::Internal;
        for (results, code) in [
            (vec![], 0),
            (vec![(Applied, fine), (Unchanged, fine), (Waiting, fine)], 0),
            (vec![(Applied, fine), (HeldBack, fine)], 0),
            (vec![(Stopped, ErrorKind::Unreviewed)], 3),
            (vec![(Stopped, ErrorKind::LeaseHeld)], 4),
            (
                vec![(Stopped, ErrorKind::LeaseHeld), (Stopped, ErrorKind::Policy)],
                3,
            ),
            (
                vec![(Stopped, ErrorKind::Policy), (Failed, ErrorKind::Unreviewed)],
                1,
            ),
            (vec![(Failed, ErrorKind::LeaseHeld)], 1),
        ] {
            assert_eq!(exit_code(&report(&results), &run(&[])), code, "{results:?}");
        }
        let mut unexplained = report(&[(Stopped, fine)]);
        unexplained.stacks[0].error = None;
        assert_eq!(exit_code(&unexplained, &run(&[])), 1);
        let interrupted = run(&[]);
        interrupted.cancel.cancel();
        assert_eq!(exit_code(&report(&[(Failed, fine)]), &interrupted), 130);
    }

    #[test]
    fn a_stack_that_waits_has_neither_succeeded_nor_broken_the_run() {
        use StackResult::{Applied, Failed, HeldBack, Stopped, Unchanged, Waiting};
        for (result, succeeded, unbroken) in [
            (Applied, true, true),
            (Unchanged, true, true),
            (Waiting, false, true),
            (HeldBack, false, true),
            (Stopped, false, false),
            (Failed, false, false),
        ] {
            let one = report(&[(Applied, ErrorKind::Policy), (result, ErrorKind::Policy)]);
            assert_eq!(ended_well(&one), succeeded, "{result:?}");
            assert_eq!(is_unbroken(&one), unbroken, "{result:?}");
            assert_eq!(only_waits(&one), result == Waiting, "{result:?}");
        }
        let both = [(Waiting, ErrorKind::Policy), (Failed, ErrorKind::Policy)];
        assert!(!only_waits(&report(&both)));
    }

    #[test]
    fn an_error_that_asks_for_a_person_or_another_run_stops_and_any_other_fails() {
        let target = Target::new(&stack("shop/prod"), None);
        for (kind, result) in [
            (ErrorKind::Unreviewed, StackResult::Stopped),
            (ErrorKind::Policy, StackResult::Stopped),
            (ErrorKind::LeaseHeld, StackResult::Stopped),
            (ErrorKind::Kubernetes, StackResult::Failed),
            (ErrorKind::Secret, StackResult::Failed),
        ] {
            let outcome = not_started(&target, &UserError::new(kind, "why"));
            assert_eq!((outcome.result, outcome.changed()), (result, 0), "{kind:?}");
            assert_eq!(outcome.error.unwrap().kind, kind);
        }
    }
}
