//! The results of an apply as Markdown, for the summary and for the comment on a merged pull request.

use std::collections::BTreeMap;

use super::{bounded_writer::BoundedWriter, unfinished_stacks};
use crate::{RunInfo, escape, labels};
use konverge_base::model::{
    CommitId, StackId,
    apply_result::{ApplyReport, StackOutcome, StackResult},
    comment_marker::CommentMarker,
};

/// Returns the number of stacks with each result that occurs.
pub fn result_counts(report: &ApplyReport) -> Vec<String> {
    let count = |result| report.stacks.iter().filter(|s| s.result == result).count();
    labels::without_zeros(
        [
            (StackResult::Applied, "applied"),
            (StackResult::Unchanged, "unchanged"),
            (StackResult::Waiting, "waiting"),
            (StackResult::Failed, "failed"),
            (StackResult::Stopped, "stopped"),
            (StackResult::HeldBack, "skipped"),
        ]
        .map(|(result, word)| (count(result), word)),
    )
}

/// Renders headline, failures, table and footer in at most `budget` bytes. If not everything fits, failures are dropped
/// last.
pub fn outcome(report: &ApplyReport, run: &RunInfo, marker: Option<&CommentMarker>, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(4096));
    let mut parts = result_counts(report);
    if parts.is_empty() {
        parts.push("nothing to do".to_owned());
    }
    let title = format!("Konverge apply: {}", parts.join(" · "));
    page.try_push(&heading(&title, run, marker));
    let footer = footer(run);
    page.reserve(footer.len() + 160);
    let mut omitted = unfinished_stacks::push(&mut page, report);
    let mut header = false;
    for stack in report
        .stacks
        .iter()
        .filter(|s| s.result != StackResult::Unchanged)
    {
        let row = row(stack);
        let block = if header {
            row
        } else {
            format!(
                "| Stack | Result | Changed | State | Plan | Reviewed |\n| --- | --- | --- | --- | --- | --- |\n{row}"
            )
        };
        if page.try_push(&block) {
            header = true;
        } else {
            omitted.insert(&stack.id);
        }
    }
    page.release(footer.len() + 160);
    if !omitted.is_empty() {
        page.try_push(&format!(
            "\nOmitted to fit the size limit: parts of {}; the job summary and the JSON result have them.\n",
            labels::plural(omitted.len(), "stack")
        ));
    }
    page.try_push(&footer);
    page.into_text()
}

/// Returns a text about the stacks that were skipped because of a newer commit; empty if there are none.
pub fn newer(stacks: &BTreeMap<StackId, CommitId>) -> String {
    const NAMED: usize = 50;
    if stacks.is_empty() {
        return String::new();
    }
    let mut text = "\nA newer commit is applied already; these stacks were left as they are:\n\n".to_owned();
    for (stack, commit) in stacks.iter().take(NAMED) {
        text.push_str(&format!(
            "- {}: `{}`\n",
            escape::code(stack.as_str()),
            commit.short()
        ));
    }
    if stacks.len() > NAMED {
        text.push_str(&format!("- and {} more\n", stacks.len() - NAMED));
    }
    text
}

fn row(stack: &StackOutcome) -> String {
    let result = match stack.result {
        StackResult::Applied => "applied",
        StackResult::Unchanged => "unchanged",
        StackResult::Waiting => "waiting",
        StackResult::Failed => "**failed**",
        StackResult::Stopped => "**stopped**",
        StackResult::HeldBack => "skipped",
    };
    let changed = match stack.resources.len() {
        0 => "nothing".to_owned(),
        all => format!("{} of {}", stack.changed(), labels::plural(all, "resource")),
    };
    let serial = stack.serial.map_or(String::new(), |s| format!("serial {s}"));
    // A stopped stack has no executed plan.
    let plan = match stack.result {
        StackResult::Applied | StackResult::Unchanged | StackResult::Waiting | StackResult::Failed => {
            format!("`{}`", stack.digest.short())
        }
        StackResult::Stopped | StackResult::HeldBack => String::new(),
    };
    let grounds = if stack.grounds.is_empty() {
        String::new()
    } else {
        escape::cell(&stack.grounds.to_string())
    };
    format!(
        "| {} | {result} | {changed} | {serial} | {plan} | {grounds} |\n",
        escape::cell(stack.id.as_str())
    )
}

/// Renders the first lines of a comment: its marker, its title and the head.
pub(super) fn heading(title: &str, run: &RunInfo, marker: Option<&CommentMarker>) -> String {
    let marker = marker.map_or(String::new(), |marker| format!("{}\n", marker.line()));
    let head = run.head.as_ref();
    let head = head.map_or(String::new(), |head| format!("head `{}`\n\n", head.short()));
    format!("{marker}### {title}\n\n{head}")
}

pub(super) fn footer(run: &RunInfo) -> String {
    let mut facts = Vec::new();
    if let Some(url) = &run.run_url {
        facts.push(escape::link("run", url));
    }
    for (stage, time) in run.timeline.stages() {
        facts.push(format!("{stage} {:.1} s", time.as_secs_f64()));
    }
    if facts.is_empty() {
        String::new()
    } else {
        format!("\n<sub>{}</sub>\n", facts.join(" · "))
    }
}
