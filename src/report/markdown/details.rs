//! The folded details: equal changes once, then the changes of each stack.

use super::{
    bounded_writer::{BoundedWriter, BudgetExceeded},
    verbosity::{Folds, Verbosity},
};
use crate::{
    model::plan::{Basis, ResourcePlan, Validation},
    report::{
        CommentInput, Merging, diff, escape, labels,
        view_model::{Group, PlanView, StackView, lifecycle},
    },
};

/// The number of stacks that a group names if not all are named.
const FEW: usize = 5;

/// What did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OmittedDetails {
    /// The number of stacks without their diffs.
    pub stacks: usize,
    /// The number of groups without their diffs.
    pub groups: usize,
}

pub(super) fn groups(
    page: &mut BoundedWriter,
    view: &PlanView<'_>,
    detail: &Verbosity,
) -> Result<usize, BudgetExceeded> {
    if view.groups.is_empty() {
        return Ok(0);
    }
    let mut omitted = 0;
    for group in &view.groups {
        let block = group_block(group, detail);
        match detail.folds {
            Folds::All => page.push(&block)?,
            Folds::Fitting => omitted += usize::from(!page.try_push(&block)),
        }
    }
    Ok(omitted)
}

fn group_block(group: &Group<'_>, detail: &Verbosity) -> String {
    let n = group.stacks.len();
    let kinds = kinds(&group.resources);
    let mut text = format!("<details><summary><b>Same change in {n} stacks</b>: {kinds}</summary>\n\n");
    let shown = if detail.group_stacks { n } else { FEW.min(n) };
    let names: Vec<_> = group.stacks[..shown]
        .iter()
        .map(|id| escape::code(id.as_str()))
        .collect();
    text.push_str(&names.join(", "));
    if shown < n {
        text.push_str(&format!(" and {} more", n - shown));
    }
    text.push_str("\n\n");
    for resource in &group.resources {
        let title = labels::Title::of(&resource.id, resource.runtime);
        text.push_str(&block(resource, &title.kind_label(), detail));
    }
    text.push_str("</details>\n\n");
    text
}

fn kinds(resources: &[&ResourcePlan]) -> String {
    let mut words: Vec<String> = Vec::new();
    for resource in resources {
        let title = labels::Title::of(&resource.id, resource.runtime);
        let kind = if title.kind.is_empty() {
            title.name
        } else {
            title.kind
        };
        let word = format!(
            "{} {}",
            labels::action_word(resource.action),
            escape::html_code(&kind)
        );
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let more = words.len().saturating_sub(4);
    words.truncate(4);
    let mut text = words.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

pub(super) fn stacks(
    page: &mut BoundedWriter,
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
    detail: &Verbosity,
) -> Result<usize, BudgetExceeded> {
    let mut omitted = 0;
    for stack in &view.stacks {
        if stack.own.is_empty() || stack.grouped.iter().all(Option::is_some) {
            continue;
        }
        let block = stack_block(input, stack, detail);
        match detail.folds {
            Folds::All => page.push(&block)?,
            // Later stacks may be smaller: each is tried.
            Folds::Fitting => omitted += usize::from(!page.try_push(&block)),
        }
    }
    Ok(omitted)
}

fn stack_block(input: &CommentInput<'_>, stack: &StackView<'_>, detail: &Verbosity) -> String {
    let mut summary = crate::model::plan::Summary::default();
    for resource in &stack.own {
        summary.count(resource.action);
    }
    let mut text = format!(
        "<details><summary><b>{}</b> {}{}</summary>\n\n",
        escape::html_code(stack.plan.id.as_str()),
        labels::counts(&summary),
        lifecycle(stack)
            .map(|word| format!(" · {word}"))
            .unwrap_or_default()
    );
    let said_below = matches!(input.mode.merging, Merging::Outside | Merging::Queued);
    if stack.plan.basis == Basis::Spec && !said_below {
        text.push_str("Compared with the base's Spec: no cluster was asked.\n\n");
    }
    for (resource, group) in stack.own.iter().zip(&stack.grouped) {
        match group {
            Some(_) => {
                let title = labels::Title::of(&resource.id, resource.runtime);
                text.push_str(&format!(
                    "- {} {}: see \"Same change\" above\n\n",
                    labels::action_word(resource.action),
                    escape::code(&title.short())
                ));
            }
            None => text.push_str(&resource_block(resource, detail)),
        }
    }
    text.push_str("</details>\n\n");
    text
}

/// The heading, the notes and the diff of a resource.
pub(super) fn resource_block(resource: &ResourcePlan, detail: &Verbosity) -> String {
    let title = labels::Title::of(&resource.id, resource.runtime);
    block(resource, &title.full(), detail)
}

fn block(resource: &ResourcePlan, title: &str, detail: &Verbosity) -> String {
    let mut text = format!(
        "#### {} {} {}\n\n",
        labels::sign(resource.action),
        labels::action_word(resource.action),
        escape::code(title)
    );
    for note in notes(resource) {
        text.push_str(&format!("- {note}\n"));
    }
    if !resource.replace.is_empty() {
        let paths: Vec<_> = resource
            .replace
            .iter()
            .map(|p| escape::code(&diff::dotted(p)))
            .collect();
        text.push_str(&format!("- must be replaced: {} changed\n", paths.join(", ")));
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    if detail.diffs {
        let lines = diff::resource(resource, detail.context);
        if !lines.is_empty() {
            text.push_str(&escape::fenced("diff", &lines.join("\n")));
            text.push('\n');
        }
    } else {
        let paths = diff::paths(resource);
        if !paths.is_empty() {
            let shown: Vec<_> = paths.iter().take(10).map(|p| escape::code(p)).collect();
            let more = paths.len().saturating_sub(10);
            text.push_str(&shown.join(", "));
            if more > 0 {
                text.push_str(&format!(" and {more} more"));
            }
            text.push_str("\n\n");
        }
    }
    text
}

fn notes(resource: &ResourcePlan) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    if resource.data_loss {
        notes.push("**permanently deletes data or releases an address**".to_owned());
    }
    if resource.validated == Validation::None && resource.changes.iter().any(|c| diff::is_own(resource, c)) {
        notes.push("not validated: no cluster was queried".to_owned());
    }
    notes.extend(resource.notes.iter().map(|note| escape::code(note)));
    notes
}
