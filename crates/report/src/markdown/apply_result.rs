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
        let of_group = report.stacks.iter().filter(|other| {
            group.is_some_and(|group| group.stacks.contains(&&other.id)) || other.id == stack.id
        });
        if is_shown && !page.try_push(&unfinished_stack(stack, group, &progress(of_group))) {
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

/// The number of resources that are named by what happened to them.
const NAMED: usize = 10;

/// `1 of 4 resources changed`, of one or more stacks.
fn progress<'a>(stacks: impl Iterator<Item = &'a StackOutcome>) -> String {
    let (mut changed, mut all) = (0, 0);
    for stack in stacks {
        changed += stack.changed();
        all += stack.resources.len();
    }
    labels::changed_of(changed, all)
}

/// What went wrong in a stack or what it waits for, or in all stacks of its group.
fn unfinished_stack(stack: &StackOutcome, group: Option<&ErrorGroup<'_>>, progress: &str) -> String {
    let (tone, title) = match (stack.result, stack.waiting) {
        (StackResult::Failed, _) => ("CAUTION", format!("failed: {progress}")),
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
            text.push_str(&format!("> hint: {}\n", escape::prose(hint)));
        }
    }
    // Which resources of several stacks says the JSON.
    let is_alone = group.is_none_or(|group| group.stacks.len() == 1);
    if stack.result == StackResult::Failed && is_alone {
        text.push_str(&named(stack, "changed", |result| {
            matches!(result, ResourceResult::Done | ResourceResult::Waiting)
        }));
        text.push_str(&named(stack, "not changed", |result| {
            result == ResourceResult::Skipped
        }));
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
            "> - {}: {} {}",
            if resource.result == ResourceResult::Failed {
                "failed"
            } else {
                "waiting"
            },
            labels::action_word(resource.action),
            escape::code(&labels::Title::from_id(&resource.id).full())
        ));
        if let Some(message) = &resource.message {
            let short: String = message.chars().take(300).collect();
            text.push_str(&format!(": {}", escape::prose(&short)));
        }
        text.push('\n');
    }
    if stack.result == StackResult::Failed {
        text.push_str(&format!(
            ">\n> What to do: {}\n",
            escape::prose(labels::AFTER_A_FAILURE)
        ));
    }
    text.push('\n');
    text
}

/// A line with the resources of some results: `- changed: create ConfigMap shop/a, update …`; empty if there are none.
fn named(stack: &StackOutcome, word: &str, is: impl Fn(ResourceResult) -> bool) -> String {
    let found: Vec<_> = stack
        .resources
        .iter()
        .filter(|resource| is(resource.result))
        .collect();
    if found.is_empty() {
        return String::new();
    }
    let names = found.iter().take(NAMED).map(|resource| {
        let title = labels::Title::from_id(&resource.id).full();
        format!(
            "{} {}",
            labels::action_word(resource.action),
            escape::code(&title)
        )
    });
    let names: Vec<_> = names.collect();
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("> - {word}: {}{more}\n", names.join(", "))
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
        "| {} | {result} | {changed} | {serial} | {plan} | {grounds} |\n",
        escape::cell(stack.id.as_str())
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
