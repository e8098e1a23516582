//! The results of an apply for a terminal or a log.

use super::{
    errors, escape, labels,
    terminal::{Color, Style, ended_with, failure},
};
use konverge_base::model::{
    apply_result::{ApplyReport, ResourceOutcome, ResourceResult, StackResult},
    plan::Action,
};

/// Returns the word and the color for the result of a stack.
fn result_word(result: StackResult) -> (&'static str, Color) {
    match result {
        StackResult::Applied => ("applied", Color::Green),
        StackResult::Unchanged => ("unchanged", Color::Dim),
        StackResult::Waiting => ("waiting", Color::Cyan),
        StackResult::Failed => ("failed", Color::Red),
        StackResult::Stopped => ("stopped before anything was changed", Color::Yellow),
        StackResult::HeldBack => ("skipped", Color::Yellow),
    }
}

/// Renders the results of an apply. An error of many stacks appears once, at the first of them.
pub fn text(report: &ApplyReport, style: Style) -> String {
    let mut text = String::new();
    let groups = errors::equal_outcomes(report);
    for stack in &report.stacks {
        let (word, color) = result_word(stack.result);
        if let Some(group) = errors::group_of(&groups, &stack.id) {
            if group.is_shown_at(&stack.id) {
                text.push_str(&ended_with(group, word, color, style));
            }
            continue;
        }
        let serial = stack.serial.map_or(String::new(), |s| format!(" (serial {s})"));
        let is_half_done = stack.result == StackResult::Failed && !stack.resources.is_empty();
        let progress = if is_half_done {
            format!(", {}", labels::changed_of(stack.changed(), stack.resources.len()))
        } else {
            String::new()
        };
        text.push_str(&format!(
            "{}: {}{progress}{serial}\n",
            style.paint(Color::Bold, &escape::log(stack.id.as_str())),
            style.paint(color, word)
        ));
        let is_stack_error = |resource: &&ResourceOutcome| resource.is_stack_error;
        let at = stack.resources.iter().filter(is_stack_error).count();
        if let Some(error) = stack.error.as_ref().filter(|_| at == 0) {
            text.push_str(&failure(error, &error.message));
        }
        let stays = |r: &&ResourceOutcome| {
            (r.action, r.result) == (Action::Forget, ResourceResult::Done) && r.message.is_some()
        };
        match stack.resources.iter().filter(stays).count() {
            0 => {}
            n => text.push_str(&format!(
                "    {} forgotten: live objects were not deleted\n",
                labels::plural(n, "resource")
            )),
        }
        for resource in &stack.resources {
            let (result, color) = match resource.result {
                ResourceResult::Done => ("done", Color::Green),
                ResourceResult::Waiting => ("waiting", Color::Cyan),
                ResourceResult::Failed => ("failed", Color::Red),
                ResourceResult::Skipped => ("skipped", Color::Yellow),
            };
            text.push_str(&format!(
                "  {} {}: {}\n",
                style.action(resource.action, labels::sign(resource.action)),
                escape::log(&labels::Title::from_id(&resource.id).full()),
                style.paint(color, result)
            ));
            // The stack itself shows the hints of its failure, one per line.
            let own = stack
                .error
                .as_ref()
                .filter(|_| at == 1 && resource.is_stack_error);
            if let Some(error) = own {
                text.push_str(&failure(error, &error.message));
                continue;
            }
            for line in resource
                .message
                .iter()
                .flat_map(|message| escape::log_each(message))
            {
                text.push_str(&format!("      {line}\n"));
            }
        }
        if is_half_done {
            text.push_str(&format!("    hint: {}\n", labels::AFTER_A_FAILURE));
        }
    }
    let count = |result| report.stacks.iter().filter(|s| s.result == result).count();
    let waiting = match count(StackResult::Waiting) {
        0 => String::new(),
        waiting => format!(", {waiting} waiting"),
    };
    text.push_str(&format!(
        "{}: {} applied, {} unchanged{waiting}, {} failed, {} stopped, {} skipped.\n",
        style.paint(Color::Bold, &labels::plural(report.stacks.len(), "stack")),
        count(StackResult::Applied),
        count(StackResult::Unchanged),
        count(StackResult::Failed),
        count(StackResult::Stopped),
        count(StackResult::HeldBack)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::{ErrorKind, UserError},
        model::{Digest, RepoPath, StackId, apply_result::StackOutcome, authorization::Authorization},
    };

    #[test]
    fn an_error_of_many_applied_stacks_is_shown_once_with_the_count() {
        let outcome_of = |id: &str, result, message: &str| {
            let id: StackId = id.parse().unwrap();
            let message = format!("stack {id}: {message}");
            StackOutcome {
                stack: RepoPath::root(),
                id,
                result,
                digest: Digest::of_set([]),
                serial: None,
                grounds: Authorization::default(),
                waiting: None,
                resources: Vec::new(),
                error: Some(
                    UserError::new(ErrorKind::Kcl, message)
                        .hint("look at base.k")
                        .body(),
                ),
            }
        };
        let same = ["a/dev", "b/dev", "c/dev"].map(|id| outcome_of(id, StackResult::Failed, "TypeError: no"));
        let mut stacks = Vec::from(same);
        stacks.push(outcome_of("d/dev", StackResult::Failed, "another"));
        stacks.push(outcome_of("e/dev", StackResult::HeldBack, "TypeError: no"));
        let report = ApplyReport { version: 1, stacks };
        assert_eq!(
            text(&report, Style::default()),
            "a/dev, b/dev, c/dev: failed (3 stacks)\n    TypeError: no\n    hint: look at base.k\n\
             d/dev: failed\n    stack d/dev: another\n    hint: look at base.k\n\
             e/dev: skipped\n    stack e/dev: TypeError: no\n    hint: look at base.k\n\
             5 stacks: 0 applied, 0 unchanged, 4 failed, 0 stopped, 1 skipped.\n"
        );
    }
}
