//! The results of an apply as Markdown, for the summary and for the comment on a merged pull request.

use std::collections::{BTreeMap, BTreeSet};

use super::bounded_writer::BoundedWriter;
use crate::{
    RunInfo,
    errors::{self, ErrorGroup},
    escape, labels,
};
use konverge_base::model::{
    CommitId, StackId,
    apply_result::{ApplyReport, ResourceResult, StackOutcome, StackResult},
    comment_marker::CommentMarker,
};

/// Renders headline, failures, table and footer in at most `budget` bytes. If space is short, failures are dropped
/// last.
pub fn outcome(report: &ApplyReport, run: &RunInfo, marker: Option<&CommentMarker>, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(4096));
    let count = |result| report.stacks.iter().filter(|s| s.result == result).count();
    let mut parts = Vec::new();
    for (result, word) in [
        (StackResult::Applied, "applied"),
        (StackResult::Unchanged, "unchanged"),
        (StackResult::Waiting, "waiting"),
        (StackResult::Failed, "failed"),
        (StackResult::Stopped, "stopped"),
        (StackResult::HeldBack, "skipped"),
    ] {
        if count(result) > 0 {
            parts.push(format!("{} {word}", count(result)));
        }
    }
    if parts.is_empty() {
        parts.push("nothing to do".to_owned());
    }
    let marker = marker.map_or(String::new(), |m| format!("{}\n", m.line()));
    let head = run
        .head
        .as_ref()
        .map_or(String::new(), |h| format!("head `{}`\n\n", h.short()));
    page.try_push(&format!(
        "{marker}### Konverge apply: {}\n\n{head}",
        parts.join(" · ")
    ));
    let footer = footer(run);
    let _ = page.reserve(footer.len() + 160);
    let mut omitted = BTreeSet::new();
    let groups = errors::equal_outcomes(report);
    for stack in report
        .stacks
        .iter()
        .filter(|s| !matches!(s.result, StackResult::Applied | StackResult::Unchanged))
    {
        let group = errors::group_of(&groups, &stack.id);
        let is_shown = group.is_none_or(|group| group.is_shown_at(&stack.id));
        if is_shown && !page.try_push(&unfinished_stack(stack, group)) {
            omitted.insert(&stack.id);
        }
    }
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
                "| Stack | Result | Done | State | Plan | Reviewed |\n| --- | --- | --- | --- | --- | --- |\n{row}"
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
            "\nOmitted to fit GitHub's limit: parts of {}; the job summary and the JSON result have them.\n",
            labels::plural(omitted.len(), "stack")
        ));
    }
    page.try_push(&footer);
    page.into_text()
}

/// The stacks that were not changed because a newer commit was applied to them; empty if there are none.
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

/// What went wrong in a stack or what it waits for, or in all stacks of its group.
fn unfinished_stack(stack: &StackOutcome, group: Option<&ErrorGroup<'_>>) -> String {
    let (tone, title) = match (stack.result, stack.waiting) {
        (StackResult::Failed, _) => ("CAUTION", "failed; what was done is recorded".to_owned()),
        (StackResult::Stopped, _) => ("WARNING", "was stopped before anything was changed".to_owned()),
        (StackResult::Waiting, Some(waiting)) => {
            ("NOTE", format!("{waiting}; the next apply takes it up again"))
        }
        _ => (
            "NOTE",
            "was skipped: a stack it depends on is not done".to_owned(),
        ),
    };
    let names = match group {
        Some(group) => group.names(escape::code),
        None => escape::code(stack.id.as_str()),
    };
    let mut text = format!("> [!{tone}]\n> {names} {title}\n");
    if let Some(error) = &stack.error {
        let message = group.map_or_else(|| error.message.clone(), ErrorGroup::message);
        let lines = errors::excerpt(&message);
        let fence = escape::fence_for(&lines.join("\n"));
        text.push_str(&format!(">\n> {fence}text\n"));
        for line in lines {
            text.push_str(&format!("> {line}\n"));
        }
        text.push_str(&format!("> {fence}\n"));
        for hint in error.hints.iter().take(4) {
            text.push_str(&format!("> hint: {}\n", escape::code(hint)));
        }
    }
    for resource in stack
        .resources
        .iter()
        .filter(|resource| matches!(resource.result, ResourceResult::Failed | ResourceResult::Waiting))
        // The error of the stack is already shown above; do not repeat it per resource.
        .filter(|resource| !labels::is_of(stack, resource))
        .take(5)
    {
        text.push_str(&format!(
            "> - {} {}",
            labels::action_word(resource.action),
            escape::code(resource.id.as_str())
        ));
        if let Some(message) = &resource.message {
            let short: String = message.chars().take(300).collect();
            text.push_str(&format!(": {}", escape::code(&short)));
        }
        text.push('\n');
    }
    text.push('\n');
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
    let done = stack
        .resources
        .iter()
        .filter(|r| r.result == ResourceResult::Done)
        .count();
    let serial = stack.serial.map_or(String::new(), |s| format!("serial {s}"));
    // For a stopped stack no plan was executed.
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
        "| {} | {result} | {done} of {} | {serial} | {plan} | {grounds} |\n",
        escape::cell(stack.id.as_str()),
        labels::plural(stack.resources.len(), "resource")
    )
}

pub(super) fn footer(run: &RunInfo) -> String {
    let mut facts = Vec::new();
    if let Some(url) = &run.run_url {
        facts.push(escape::link("run", url));
    }
    for (stage, time) in &run.timings {
        facts.push(format!("{stage} {:.1} s", time.as_secs_f64()));
    }
    if facts.is_empty() {
        String::new()
    } else {
        format!("\n<sub>{}</sub>\n", facts.join(" · "))
    }
}
