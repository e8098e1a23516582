//! The changes of the stacks, and of several stacks at once.

use maud::{Markup, PreEscaped, html};

use super::elements::{class, code, codes, fields, line};
use crate::{
    diff,
    equal_changes::EqualChange,
    labels,
    view_model::{PlanView, StackView},
};
use konverge_base::model::{
    affected::AffectedStack,
    plan::{Action, Basis, ResourcePlan},
};

/// The filter for stacks that failed.
pub(super) const FAILED: &str = "failed";

/// The filter for deletions, replacements and lost data.
pub(super) const DANGEROUS: &str = "dangerous";

/// The number of reasons that are shown of a stack.
const REASONS: usize = 20;

/// The word of an action that the filters use.
pub(super) fn filter_key(action: Action) -> String {
    labels::action_word(action).replace(' ', "-")
}

/// Returns true if a change deletes, replaces or may have to.
pub(super) fn is_dangerous(resources: &[&ResourcePlan]) -> bool {
    let is = |resource: &&ResourcePlan| labels::is_grave(resource) || !resource.immutable.is_empty();
    resources.iter().any(is)
}

/// The filters that show an item.
fn filter_keys(resources: &[&ResourcePlan], failed: bool) -> String {
    let mut keys: Vec<_> = resources
        .iter()
        .map(|resource| filter_key(resource.action))
        .collect();
    keys.extend(is_dangerous(resources).then(|| DANGEROUS.to_owned()));
    keys.sort_unstable();
    keys.dedup();
    keys.extend(failed.then(|| FAILED.to_owned()));
    keys.join(" ")
}

/// The changes that are the same in several stacks.
pub(super) fn groups(view: &PlanView<'_>) -> Markup {
    if view.groups.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Same change in several stacks" }
            @for (index, group) in view.groups.iter().enumerate() {
                @let resources: Vec<_> = group.changes.iter().map(EqualChange::first).collect();
                details.item id={ "group-" (index) } data-actions=(filter_keys(&resources, false)) {
                    summary {
                        span.name { (PreEscaped(group.title())) } " "
                        span.where { "in " (group.stacks.len()) " stacks" }
                    }
                    p.stacks { (codes(group.stacks.iter().map(|id| id.as_str()), " ")) }
                    @for change in &group.changes {
                        @let resource = change.first();
                        @let kind = labels::Title::with_runtime(&resource.id, resource.runtime);
                        // What differs already differs in each stack, and is shown there.
                        article.resource {
                            (change_of(resource, &format!("{} {}", kind.kind_label(), change.names().join(", "))))
                        }
                    }
                }
            }
        }
    }
}

/// The changes of each stack.
pub(super) fn stacks(view: &PlanView<'_>) -> Markup {
    html! {
        @if !view.stacks.is_empty() {
            section {
                h2 { "Stacks" }
                @for stack in &view.stacks { (stack_item(stack)) }
            }
        }
    }
}

fn stack_item(stack: &StackView<'_>) -> Markup {
    let failed = stack.plan.error.is_some();
    html! {
        details.item data-actions=(filter_keys(&stack.own, failed)) {
            summary {
                span.name { (line(stack.plan.id.as_str())) } " "
                span.where {
                    @if !failed || stack.plan.fails_in_part() { (labels::counts(&diff::own_summary(stack.plan))) }
                }
                @if failed { " " span.badge.failed { "failed" } }
            }
            @if let Some(affected) = stack.affected { (reasons(affected)) }
            @if failed {
                p.note { "This stack " (labels::failed(stack.plan)) ". The error is at the top of the page." }
            }
            @if stack.plan.basis == Basis::Spec {
                p.note { "Not validated: compared with the base's Spec." }
            }
            @for (resource, group) in stack.own.iter().zip(&stack.grouped) {
                @match group {
                    Some(index) => {
                        p.same {
                            (labels::action_word(resource.action)) " " (code(&full_title(resource))) ": "
                            a href={ "#group-" (index) } { "see \"Same change\"" }
                        }
                        (drift_of(resource))
                    }
                    None => (resource_item(resource)),
                }
            }
        }
    }
}

fn reasons(affected: &AffectedStack) -> Markup {
    html! {
        ul.why {
            @for reason in affected.why.iter().take(REASONS) {
                li {
                    @if reason.chain.is_empty() { (code(reason.path.as_str())) }
                    (codes(reason.chain.iter().map(|file| file.as_str()), " → "))
                }
            }
            @if affected.why.len() > REASONS { li { "and " (affected.why.len() - REASONS) " more" } }
        }
    }
}

/// What others changed on the cluster, in stacks that this change leaves alone.
pub(super) fn drifted(view: &PlanView<'_>) -> Markup {
    let is_shown = |id| view.stacks.iter().any(|stack| stack.plan.id == id);
    let drifted: Vec<_> = view
        .drifted
        .iter()
        .filter(|stack| !is_shown(stack.id.clone()))
        .collect();
    html! {
        @if !drifted.is_empty() {
            section {
                h2 { "Already different on the cluster" }
                @for stack in drifted {
                    details.item data-actions="update" {
                        summary { span.name { (line(stack.id.as_str())) } }
                        @for resource in stack.resources.iter().filter(|r| r.changes.iter().any(diff::is_drift)) {
                            (resource_item(resource))
                        }
                    }
                }
            }
        }
    }
}

fn full_title(resource: &ResourcePlan) -> String {
    labels::Title::with_runtime(&resource.id, resource.runtime).full()
}

fn resource_item(resource: &ResourcePlan) -> Markup {
    html! {
        article.resource {
            (change_of(resource, &full_title(resource)))
            (drift_of(resource))
        }
    }
}

fn change_of(resource: &ResourcePlan, title: &str) -> Markup {
    html! {
        h3 {
            span.badge.(class(resource.action)) { (labels::sign(resource.action)) " " (labels::action_word(resource.action)) }
            " " (line(title))
        }
        @if resource.data_loss {
            p.note { strong { "permanently deletes data or releases an address" } }
        }
        @if !resource.replace.is_empty() {
            p.note { (fields("must be replaced, because of a change of ", &resource.replace)) }
        }
        @if !resource.immutable.is_empty() {
            p.note {
                (fields("may have to be replaced, because this cannot be changed in place: ", &resource.immutable))
            }
        }
        @for note in &resource.notes { p.note { (line(note)) } }
        (diff_lines(&diff::resource(resource, diff::DiffContext::Tree(3))))
    }
}

/// What differs already, apart from the change.
fn drift_of(resource: &ResourcePlan) -> Markup {
    let drift = diff::drift(resource, diff::DiffContext::Tree(3));
    html! {
        @if !drift.is_empty() {
            p.note { "Already different on the cluster, not from this pull request:" }
            (diff_lines(&drift))
        }
    }
}

fn diff_lines(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            pre.diff tabindex="0" {
                @for text in lines {
                    @match text.as_bytes().first() {
                        Some(b'+') => ins { (super::elements::text(text)) },
                        Some(b'-') => del { (super::elements::text(text)) },
                        _ => span { (super::elements::text(text)) },
                    }
                }
            }
        }
    }
}
