//! The number of stacks with each result of an apply, for the status of the commit.

use konverge_base::model::apply_result::{ApplyReport, StackResult};

/// Returns the number of stacks with each result as a text.
pub(super) fn counts(report: &ApplyReport) -> String {
    let count = |result| {
        report
            .stacks
            .iter()
            .filter(|stack| stack.result == result)
            .count()
    };
    let words = [
        (StackResult::Applied, "applied"),
        (StackResult::Unchanged, "unchanged"),
        (StackResult::Waiting, "waiting"),
        (StackResult::Failed, "failed"),
        (StackResult::Stopped, "stopped"),
        (StackResult::HeldBack, "skipped"),
    ];
    let words: Vec<_> = words
        .iter()
        .filter(|(result, _)| count(*result) > 0)
        .map(|(result, word)| format!("{} {word}", count(*result)))
        .collect();
    words.join(", ")
}
