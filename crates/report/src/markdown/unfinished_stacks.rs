//! Lists the stacks that an apply did not finish, the worst first, each with its error or what it waits for.

use std::collections::BTreeSet;

use super::bounded_writer::BoundedWriter;
use crate::{
    errors::{self, ErrorGroup},
    escape, labels,
};
use konverge_base::model::{
    StackId,
    apply_result::{ApplyReport, ResourceResult, StackOutcome, StackResult},
    text::first_few,
};

/// The maximum number of resources that are listed for each result.
const NAMED: usize = 10;

/// Adds the list, unless every stack is done. Returns the stacks that did not fit.
pub(super) fn push<'a>(page: &mut BoundedWriter, report: &'a ApplyReport) -> BTreeSet<&'a StackId> {
    let groups = errors::equal_outcomes(report);
    let mut stacks: Vec<_> = report
        .stacks
        .iter()
        .filter(|stack| !matches!(stack.result, StackResult::Applied | StackResult::Unchanged))
        .filter(|stack| errors::group_of(&groups, &stack.id).is_none_or(|group| group.is_shown_at(&stack.id)))
        .collect();
    stacks.sort_by_key(|stack| severity(stack.result));
    let mut omitted = BTreeSet::new();
    let Some(worst) = stacks.first() else {
        return omitted;
    };
    let tone = tone(worst.result);
    let is_list = stacks.len() > 1;
    let last_failed = stacks
        .iter()
        .rposition(|stack| stack.result == StackResult::Failed);
    let mut is_open = false;
    for (at, stack) in stacks.iter().enumerate() {
        let group = errors::group_of(&groups, &stack.id);
        let of_group = report.stacks.iter().filter(|other| {
            group.is_some_and(|group| group.stacks.contains(&&other.id)) || other.id == stack.id
        });
        let head = if is_open {
            String::new()
        } else {
            format!("> [!{tone}]\n")
        };
        let lines = unfinished_stack(stack, group, &progress(of_group));
        if page.try_push(&format!("{head}{}", quoted(&lines, is_list))) {
            is_open = true;
        } else {
            omitted.insert(&stack.id);
        }
        // The advice is the same for all stacks, so it appears once, after the last failed one.
        if is_open && Some(at) == last_failed {
            let advice = escape::prose(labels::AFTER_A_FAILURE);
            page.try_push(&format!(">\n> What to do: {advice}\n"));
        }
    }
    if is_open {
        page.try_push("\n");
    }
    omitted
}

/// Returns how bad the result of a stack is. The worst is 0.
fn severity(result: StackResult) -> u8 {
    match result {
        StackResult::Failed => 0,
        StackResult::Stopped => 1,
        StackResult::Waiting => 2,
        StackResult::HeldBack | StackResult::Applied | StackResult::Unchanged => 3,
    }
}

fn tone(result: StackResult) -> &'static str {
    match result {
        StackResult::Failed => "CAUTION",
        StackResult::Stopped => "WARNING",
        _ => "NOTE",
    }
}

/// Returns the lines of a quote, as a list item if there are several stacks.
fn quoted(lines: &[String], is_list: bool) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = match (is_list, at) {
            (false, _) => "",
            (true, 0) => "- ",
            (true, _) => "  ",
        };
        text.push_str(format!("> {indent}{line}").trim_end());
        text.push('\n');
    }
    text
}

/// Returns how many resources of one or more stacks were changed: `1 of 4 resources changed`.
fn progress<'a>(stacks: impl Iterator<Item = &'a StackOutcome>) -> String {
    let (mut changed, mut all) = (0, 0);
    for stack in stacks {
        changed += stack.changed();
        all += stack.resources.len();
    }
    labels::changed_of(changed, all)
}

/// Describes the error of a stack or what it waits for. `group` has all stacks with the same error.
fn unfinished_stack(stack: &StackOutcome, group: Option<&ErrorGroup<'_>>, progress: &str) -> Vec<String> {
    let title = match (stack.result, stack.waiting) {
        (StackResult::Failed, _) => format!("failed: {progress}"),
        (StackResult::Stopped, _) => "was stopped before anything was changed".to_owned(),
        (StackResult::Waiting, Some(waiting)) => format!("{waiting}; the next apply continues"),
        _ => "was skipped: a stack it depends on is not done".to_owned(),
    };
    let names = match group {
        Some(group) => group.names(escape::code),
        None => escape::code(stack.id.as_str()),
    };
    let mut text = vec![format!("{names} {title}")];
    if let Some(error) = &stack.error {
        let message = group.map_or_else(|| error.message.clone(), ErrorGroup::message);
        let lines = errors::excerpt(&message);
        let fence = escape::fence_for(&lines.join("\n"));
        text.extend([String::new(), format!("{fence}text")]);
        text.extend(lines);
        text.push(fence);
        let hints = error.hints.iter().take(4);
        text.extend(hints.map(|hint| format!("hint: {}", escape::prose(hint))));
    }
    // For several stacks, only the JSON output lists the resources.
    let is_alone = group.is_none_or(|group| group.stacks.len() == 1);
    if stack.result == StackResult::Failed && is_alone {
        text.extend(named(stack, "changed", |result| {
            matches!(result, ResourceResult::Done | ResourceResult::Waiting)
        }));
        text.extend(named(stack, "not changed", |result| {
            result == ResourceResult::Skipped
        }));
    }
    for resource in stack
        .resources
        .iter()
        .filter(|resource| matches!(resource.result, ResourceResult::Failed | ResourceResult::Waiting))
        // The error of the stack is already shown above, so it is not repeated at each resource.
        .filter(|resource| !resource.is_stack_error)
        .take(5)
    {
        let word = if resource.result == ResourceResult::Failed {
            "failed"
        } else {
            "waiting"
        };
        let mut line = format!(
            "- {word}: {} {}",
            resource.action,
            escape::code(&labels::Title::from_id(&resource.id).full())
        );
        if let Some(message) = &resource.message {
            let short: String = message.chars().take(300).collect();
            line.push_str(&format!(": {}", escape::prose(&short)));
        }
        text.push(line);
    }
    text
}

/// Returns a line with the resources that have some results: `- changed: create ConfigMap shop/a, update …`; `None`
/// without any.
fn named(stack: &StackOutcome, word: &str, is: impl Fn(ResourceResult) -> bool) -> Option<String> {
    let found: Vec<_> = stack
        .resources
        .iter()
        .filter(|resource| is(resource.result))
        .collect();
    if found.is_empty() {
        return None;
    }
    let names = found.iter().map(|resource| {
        let title = escape::code(&labels::Title::from_id(&resource.id).full());
        format!("{} {title}", resource.action)
    });
    Some(format!("- {word}: {}", first_few(names, NAMED)))
}
