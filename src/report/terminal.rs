//! Reports for a terminal or a log, with colours if requested.

use super::{
    diff,
    errors::{self, ErrorGroup},
    escape, labels,
};
use crate::error::ErrorBody;
use crate::model::{
    affected::{Affected, AffectedStack, InputChange, InputKind, SpecChange},
    apply_result::{ApplyReport, ResourceOutcome, ResourceResult, StackResult},
    plan::{Action, Basis, Plan, ResourcePlan, StackPlan, Summary},
};

/// The style of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Use ANSI colours.
    pub color: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Color {
    Green,
    Yellow,
    Red,
    Cyan,
    Dim,
    Bold,
}

impl Style {
    pub(super) fn ink(self, ink: Color, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        use anstyle::{AnsiColor, Style as Ansi};
        let style = match ink {
            Color::Green => AnsiColor::Green.on_default(),
            Color::Yellow => AnsiColor::Yellow.on_default(),
            Color::Red => AnsiColor::Red.on_default(),
            Color::Cyan => AnsiColor::Cyan.on_default(),
            Color::Dim => Ansi::new().dimmed(),
            Color::Bold => Ansi::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }

    fn action(self, action: Action, text: &str) -> String {
        match action {
            Action::Create | Action::Adopt => self.ink(Color::Green, text),
            Action::Update | Action::Unknown => self.ink(Color::Yellow, text),
            Action::Replace | Action::Delete | Action::Forget => self.ink(Color::Red, text),
            Action::Unchanged => self.ink(Color::Dim, text),
        }
    }
}

/// The title of a part of the output.
pub fn title(text: &str, style: Style) -> String {
    format!(
        "\n{}\n",
        style.ink(Color::Bold, &format!("==> {}", escape::log(text)))
    )
}

/// One line of a file that was replaced.
pub fn file_edit(file: &str, from: &str, to: &str, style: Style) -> String {
    format!(
        "{}\n{}",
        style.ink(Color::Dim, &escape::log(file)),
        paint(&[format!("-{from}"), format!("+{to}")], style)
    )
}

/// The affected stacks and the reasons.
pub fn affected(affected: &Affected, style: Style) -> String {
    if affected.stacks.is_empty() {
        return "No stack is affected.\n".to_owned();
    }
    let mut text = String::new();
    for stack in &affected.stacks {
        text.push_str(&affected_stack(stack, style));
    }
    text.push_str(&format!(
        "{} affected.\n",
        labels::plural(affected.stacks.len(), "stack")
    ));
    text
}

fn affected_stack(stack: &AffectedStack, style: Style) -> String {
    let (sign, ink) = match stack.change {
        InputChange::Added => ("+", Color::Green),
        InputChange::Removed => ("-", Color::Red),
        InputChange::Modified => ("~", Color::Yellow),
    };
    let spec = match stack.spec {
        SpecChange::Same => ", compiles to the same",
        SpecChange::Error => ", does not compile",
        SpecChange::Changed | SpecChange::NotCompiled => "",
    };
    let mut text = format!(
        "{} {} {}\n",
        style.ink(ink, sign),
        style.ink(Color::Bold, &escape::log(stack.id.as_str())),
        style.ink(
            Color::Dim,
            &format!("({}{spec})", escape::log(stack.stack.as_str()))
        )
    );
    for reason in &stack.why {
        let chain: Vec<_> = reason.chain.iter().map(|p| escape::log(p.as_str())).collect();
        let chain = if chain.is_empty() {
            escape::log(reason.path.as_str())
        } else {
            chain.join(" → ")
        };
        text.push_str(&format!("    {}: {chain}\n", kind(reason.kind)));
    }
    text
}

fn kind(kind: InputKind) -> &'static str {
    match kind {
        InputKind::Import => "import",
        InputKind::Entry => "entry",
        InputKind::Settings => "settings",
        InputKind::Options => "options",
        InputKind::Project => "project",
        InputKind::Stack => "stack",
        InputKind::Module => "module",
        InputKind::Data => "data",
        InputKind::Crd => "crd",
        InputKind::Config => "config",
        InputKind::Compiler => "compiler",
        InputKind::Moved => "moved",
        InputKind::Unresolved => "unresolved",
        InputKind::Workspace => "workspace",
    }
}

/// The planned changes.
pub fn plan(plan: &Plan, style: Style) -> String {
    let mut text = String::new();
    let mut total = Summary::default();
    let mut failed = 0;
    let groups = failure_groups(plan);
    for stack in &plan.stacks {
        total = total + stack.summary;
        failed += usize::from(stack.error.is_some());
        match whole_failure(stack) {
            // An error of many stacks is shown once, at the first of them.
            Some(_) => {
                let group = groups.iter().find(|group| group.stacks[0] == &stack.id);
                text.extend(group.map(|group| failed_with(group, style)));
            }
            None => text.push_str(&stack_plan(stack, style)),
        }
    }
    let failed = if failed > 0 {
        format!(", {failed} failed")
    } else {
        String::new()
    };
    text.push_str(&format!(
        "{}: {}{failed}.\n",
        style.ink(Color::Bold, &labels::plural(plan.stacks.len(), "stack")),
        labels::counts(&total)
    ));
    text
}

/// Every failure of whole stacks; an error of many stacks is shown once.
pub(super) fn failures(plan: &Plan, style: Style) -> String {
    let groups = failure_groups(plan).into_iter();
    groups.map(|group| failed_with(&group, style)).collect()
}

fn failure_groups(plan: &Plan) -> Vec<ErrorGroup<'_>> {
    let failed = plan.stacks.iter();
    errors::group(failed.filter_map(|stack| Some((&stack.id, whole_failure(stack)?))))
}

/// The failure of a stack: message, place, hints.
fn failure(error: &ErrorBody, message: &str) -> String {
    let mut text = String::new();
    for line in escape::log_each(message) {
        text.push_str(&format!("    {line}\n"));
    }
    if let Some(file) = &error.file {
        let numbers = [error.line, error.column].into_iter().map_while(|n| n);
        let place: String = numbers.map(|number| format!(":{number}")).collect();
        text.push_str(&format!("    at {}\n", escape::log(&format!("{file}{place}"))));
    }
    for hint in &error.hints {
        text.push_str(&format!("    hint: {}\n", escape::log(hint)));
    }
    text
}

/// The error of a stack of which nothing could be planned.
pub(super) fn whole_failure(stack: &StackPlan) -> Option<&ErrorBody> {
    stack
        .error
        .as_ref()
        .filter(|_| labels::left_as_it_is(stack).is_none())
}

/// All stacks that failed with the same error.
fn failed_with(group: &ErrorGroup<'_>, style: Style) -> String {
    ended_with(group, "failed", Color::Red, style)
}

/// All stacks that ended with the same error, with their number if there are several.
fn ended_with(group: &ErrorGroup<'_>, word: &str, ink: Color, style: Style) -> String {
    let names = group.names(|name| style.ink(Color::Bold, &escape::log(name)));
    let count = match group.stacks.len() {
        1 => String::new(),
        n => format!(" ({})", labels::plural(n, "stack")),
    };
    format!(
        "{names}: {}{count}\n{}",
        style.ink(ink, word),
        failure(group.error, &group.message())
    )
}

/// The failure of a part of a stack; empty if there is none.
pub(super) fn partial_failure(stack: &StackPlan, name: &str, style: Style) -> String {
    match (&stack.error, labels::left_as_it_is(stack)) {
        (Some(error), Some(rest)) => format!(
            "{name}: {}\n{}    {rest}\n",
            style.ink(Color::Red, "failed in part"),
            failure(error, &error.message)
        ),
        _ => String::new(),
    }
}

fn stack_plan(stack: &StackPlan, style: Style) -> String {
    let name = style.ink(Color::Bold, &escape::log(stack.id.as_str()));
    let mut text = partial_failure(stack, &name, style);
    let basis = match stack.basis {
        Basis::Live => "",
        Basis::NeverApplied => " (never applied)",
        Basis::Spec => " (Spec compared with Spec: no cluster was asked)",
    };
    text.push_str(&format!("{name}: {}{basis}\n", labels::counts(&stack.summary)));
    for resource in &stack.resources {
        text.push_str(&resource_plan(resource, style));
    }
    text
}

fn resource_plan(resource: &ResourcePlan, style: Style) -> String {
    let title = labels::Title::of(&resource.id, resource.runtime);
    let mut text = format!(
        "  {} {}\n",
        style.action(
            resource.action,
            &format!(
                "{} {}",
                labels::sign(resource.action),
                labels::action_word(resource.action)
            )
        ),
        escape::log(&title.full())
    );
    if resource.data_loss {
        text.push_str(&format!(
            "      {}\n",
            style.ink(Color::Red, "permanently deletes data or releases an address")
        ));
    }
    if !resource.replace.is_empty() {
        let paths: Vec<_> = resource
            .replace
            .iter()
            .map(|p| escape::log(&diff::dotted(p)))
            .collect();
        text.push_str(&format!("      must be replaced: {} changed\n", paths.join(", ")));
    }
    for note in &resource.notes {
        text.push_str(&format!("      note: {}\n", escape::log(note)));
    }
    let own = diff::resource(resource, diff::DiffContext::Tree(3));
    text.push_str(&paint(&own, style));
    let drift = diff::drift(resource, diff::DiffContext::Tree(3));
    if !drift.is_empty() {
        text.push_str(&format!(
            "      {}\n",
            style.ink(Color::Cyan, "already different on the cluster:")
        ));
        text.push_str(&paint(&drift, style));
    }
    text
}

pub(super) fn paint(lines: &[String], style: Style) -> String {
    lines
        .iter()
        .map(|line| {
            let safe = escape::log(line);
            let painted = match line.as_bytes().first() {
                Some(b'+') => style.ink(Color::Green, &safe),
                Some(b'-') => style.ink(Color::Red, &safe),
                _ => safe,
            };
            format!("      {painted}\n")
        })
        .collect()
}

/// The result of a stack in words.
fn result_word(result: StackResult) -> (&'static str, Color) {
    match result {
        StackResult::Applied => ("applied", Color::Green),
        StackResult::Unchanged => ("unchanged", Color::Dim),
        StackResult::Failed => ("failed", Color::Red),
        StackResult::Stopped => ("stopped before anything was touched", Color::Yellow),
        StackResult::HeldBack => ("held back", Color::Yellow),
    }
}

/// The results of an apply. An error of many stacks is shown once, at the first of them.
pub fn outcome(report: &ApplyReport, style: Style) -> String {
    let mut text = String::new();
    let groups = errors::equal_outcomes(report);
    for stack in &report.stacks {
        let (word, ink) = result_word(stack.result);
        if let Some(group) = errors::group_of(&groups, &stack.id) {
            if group.is_shown_at(&stack.id) {
                text.push_str(&ended_with(group, word, ink, style));
            }
            continue;
        }
        let serial = stack.serial.map_or(String::new(), |s| format!(" (state {s})"));
        text.push_str(&format!(
            "{}: {}{serial}\n",
            style.ink(Color::Bold, &escape::log(stack.id.as_str())),
            style.ink(ink, word)
        ));
        let told = |resource: &&ResourceOutcome| labels::is_of(stack, resource);
        let at = stack.resources.iter().filter(told).count();
        if let Some(error) = stack.error.as_ref().filter(|_| at == 0) {
            text.push_str(&failure(error, &error.message));
        }
        let stays = |r: &&ResourceOutcome| {
            (r.action, r.result) == (Action::Forget, ResourceResult::Done) && r.message.is_some()
        };
        match stack.resources.iter().filter(stays).count() {
            0 => {}
            n => text.push_str(&format!(
                "    {} forgotten: outside nothing was deleted\n",
                labels::plural(n, "resource")
            )),
        }
        for resource in &stack.resources {
            let (result, ink) = match resource.result {
                ResourceResult::Done => ("done", Color::Green),
                ResourceResult::Failed => ("failed", Color::Red),
                ResourceResult::Skipped => ("skipped", Color::Yellow),
            };
            text.push_str(&format!(
                "  {} {}: {}\n",
                style.action(resource.action, labels::sign(resource.action)),
                escape::log(&labels::Title::from_id(&resource.id).full()),
                style.ink(ink, result)
            ));
            // The stack with the failure shows its hints line by line.
            let own = stack
                .error
                .as_ref()
                .filter(|_| at == 1 && labels::is_of(stack, resource));
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
    }
    let count = |result| report.stacks.iter().filter(|s| s.result == result).count();
    text.push_str(&format!(
        "{}: {} applied, {} unchanged, {} failed, {} stopped, {} held back.\n",
        style.ink(Color::Bold, &labels::plural(report.stacks.len(), "stack")),
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
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
            outcome(&report, Style::default()),
            "a/dev, b/dev, c/dev: failed (3 stacks)\n    TypeError: no\n    hint: look at base.k\n\
             d/dev: failed\n    stack d/dev: another\n    hint: look at base.k\n\
             e/dev: held back\n    stack e/dev: TypeError: no\n    hint: look at base.k\n\
             5 stacks: 0 applied, 0 unchanged, 4 failed, 0 stopped, 1 held back.\n"
        );
    }
}
