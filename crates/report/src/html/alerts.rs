//! The list of dangerous changes and errors at the top of the page.

use maud::{Markup, PreEscaped, html};

use super::elements::{class, code, fields, line, prose, text};
use crate::{
    CommentInput, diff, errors, escape, labels,
    view_model::{PlanView, StackView},
    yaml_text,
};
use konverge_base::{
    error::ErrorBody,
    model::{
        plan::{Action, Basis, ResourcePlan},
        policy_finding::Enforcement,
    },
};

/// Lists errors and dangerous changes, the worst first.
pub(super) fn alerts(input: &CommentInput<'_>, view: &PlanView<'_>) -> Markup {
    let items = html! {
        (failures(view))
        @for finding in input.findings.iter().filter(|f| f.verdict == Enforcement::Deny) {
            li.failed {
                @if let Some(stack) = &finding.stack { (code(stack.as_str())) ": " }
                (code(&finding.rule)) " blocks this from being applied: " (prose(&finding.message))
                @if let Some(hint) = &finding.hint { p { "hint: " (prose(hint)) } }
            }
        }
        (grave_changes(view))
        (immutable_changes(view))
        @for (stack, resource, change) in view.changed_by_others() {
            li.update {
                @if input.mode.stops_at_drift { "the apply stops here, because others changed " }
                @else { "merging takes back what others changed: " }
                (code(&diff::dotted(&change.path)))
                @if let Some((from, to)) = yaml_text::short_values(change.from.as_ref(), change.to.as_ref()) {
                    " " (value_or(from.as_deref(), "absent")) " → " (value_or(to.as_deref(), "absent"))
                }
                " of " (short_title(resource)) " in " (code(stack.as_str()))
            }
        }
        @for change in input.power {
            li.replace {
                "this merge changes what grants permissions in " (code(change.file())) ": " (code(&change.key))
                " from " (value_or(change.from.as_deref(), "not set"))
                " to " (value_or(change.to.as_deref(), "not set"))
            }
        }
        @if view.stacks.iter().any(|stack| stack.plan.basis == Basis::Spec && !stack.own.is_empty()) {
            li.replace { "Not validated. " (labels::SPEC_ONLY) }
        }
        (unchecked(view))
    };
    html! {
        @if !items.0.is_empty() {
            section.alerts {
                h2 { "Look at these first" }
                ul { (items) }
            }
        }
    }
}

fn failures(view: &PlanView<'_>) -> Markup {
    html! {
        @for group in errors::group(view.whole_failures()) {
            li.failed {
                (PreEscaped(group.names(escape::html_code))) " " (labels::FAILED)
                (error_text(group.error, &group.message()))
            }
        }
        @for group in errors::group(view.earlier_failures()) {
            li {
                (PreEscaped(group.names(escape::html_code))) " " (labels::FAILED_BEFORE)
                (error_text(group.error, &group.message()))
            }
        }
        @for stack in &view.stacks {
            @if let (Some(error), Some(rest)) = (&stack.plan.error, labels::left_as_it_is(stack.plan)) {
                li.failed {
                    (code(stack.plan.id.as_str())) " " (labels::failed(stack.plan))
                    (error_text(error, &error.message))
                    p { (text(&rest)) }
                }
            }
        }
    }
}

/// Renders the position, the message and the hints of an error.
fn error_text(error: &ErrorBody, message: &str) -> Markup {
    html! {
        @if let Some(file) = &error.file {
            @let line = error.line.map_or(String::new(), |line| format!(":{line}"));
            " at " (code(&format!("{file}{line}")))
        }
        pre { (text(message)) }
        @for hint in &error.hints { p { "hint: " (prose(hint)) } }
    }
}

fn own_changes<'v>(view: &'v PlanView<'_>) -> impl Iterator<Item = (&'v StackView<'v>, &'v ResourcePlan)> {
    let stacks = view.stacks.iter();
    stacks.flat_map(|stack| stack.own.iter().map(move |resource| (stack, *resource)))
}

/// Lists deletions, replacements and lost data.
fn grave_changes(view: &PlanView<'_>) -> Markup {
    let mut grave: Vec<_> = own_changes(view)
        .filter(|(_, resource)| labels::is_grave(resource))
        .collect();
    grave.sort_by_key(|(_, resource)| (!resource.data_loss, resource.action != Action::Replace));
    html! {
        @for (stack, resource) in grave {
            @let style = if resource.data_loss { Action::Delete } else { resource.action };
            li class=(class(style)) {
                (resource.action) " " (short_title(resource)) " in " (code(stack.plan.id.as_str()))
                (fields(", forced by ", &resource.replace))
                @if resource.data_loss {
                    ": permanently deletes data or releases an address"
                    @if let Some(loss) = labels::loss(resource) { ": " (prose(loss)) }
                }
            }
        }
    }
}

/// Lists resources that may have to be replaced.
fn immutable_changes(view: &PlanView<'_>) -> Markup {
    let may_be_replaced =
        |(_, resource): &(_, &ResourcePlan)| !labels::is_grave(resource) && !resource.immutable.is_empty();
    html! {
        @for (stack, resource) in own_changes(view).filter(may_be_replaced) {
            li.replace {
                (short_title(resource)) " in " (code(stack.plan.id.as_str())) " may have to be replaced"
                (fields(": cannot be changed in place: ", &resource.immutable))
            }
        }
    }
}

fn unchecked(view: &PlanView<'_>) -> Markup {
    let unchecked = view.unchecked();
    html! {
        @if !unchecked.is_empty() {
            li.replace {
                (labels::UNCHECKED)
                @for (index, (stack, title)) in unchecked.iter().enumerate() {
                    @if index > 0 { ", " }
                    (code(&title.short())) " in " (code(stack.as_str()))
                }
            }
        }
    }
}

fn short_title(resource: &ResourcePlan) -> Markup {
    code(&labels::Title::with_runtime(&resource.id, resource.runtime).short())
}

/// Returns a value, or the words for its absence.
fn value_or(value: Option<&str>, absent: &str) -> Markup {
    match value {
        Some(value) => code(value),
        None => line(absent),
    }
}
