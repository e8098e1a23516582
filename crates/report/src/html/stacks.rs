//! The changes of each stack, and the changes that are equal in several stacks.

use maud::{Markup, PreEscaped, html};

use super::elements::{action, code, codes, diff_lines, fields, line, prose};
use crate::{
    diff,
    equal_changes::EqualChange,
    escape, labels,
    view_model::{PlanView, StackView},
};
use konverge_base::model::{
    affected::AffectedStack,
    plan::{Basis, ResourcePlan},
};

/// The filter for stacks that failed.
pub(super) const FAILED: &str = "failed";

/// The filter for deletions, replacements and lost data.
pub(super) const DANGEROUS: &str = "dangerous";

/// The maximum number of reasons that are shown for a stack.
const REASONS: usize = 20;

/// Returns true if a change deletes or replaces a resource, or may have to.
pub(super) fn is_dangerous(resources: &[&ResourcePlan]) -> bool {
    let is = |resource: &&ResourcePlan| labels::is_grave(resource) || !resource.immutable.is_empty();
    resources.iter().any(is)
}

/// Returns the filters under which an item is shown.
fn filter_keys(resources: &[&ResourcePlan], failed: bool) -> String {
    let mut keys: Vec<_> = resources
        .iter()
        .map(|resource| resource.action.to_string())
        .collect();
    keys.extend(is_dangerous(resources).then(|| DANGEROUS.to_owned()));
    keys.sort_unstable();
    keys.dedup();
    keys.extend(failed.then(|| FAILED.to_owned()));
    keys.join(" ")
}

/// The maximum number of diff lines for which all changes of a page are open.
const SMALL: usize = 80;

/// Returns true if all diffs together are so short that they can be open from the start.
fn is_small(view: &PlanView<'_>) -> bool {
    let groups = view
        .groups
        .iter()
        .flat_map(|group| group.changes.iter().map(EqualChange::first));
    let own = view.stacks.iter().flat_map(|stack| {
        let own = stack
            .own
            .iter()
            .zip(&stack.grouped)
            .filter(|(_, group)| group.is_none());
        let drifted = stack
            .plan
            .resources
            .iter()
            .filter(|resource| diff::differs_already(resource));
        own.map(|(resource, _)| *resource).chain(drifted)
    });
    let mut left = SMALL;
    groups.chain(own).all(|resource| {
        let context = diff::DiffContext::Tree(3);
        let lines = diff::resource(resource, context).len() + diff::drift(resource, context).len();
        // The title of a resource takes room, too.
        let fits = lines < left;
        left = left.saturating_sub(lines + 1);
        fits
    })
}

/// Renders the changes that are equal in several stacks.
pub(super) fn groups(view: &PlanView<'_>) -> Markup {
    if view.groups.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Same change in several stacks" }
            @for (index, group) in view.groups.iter().enumerate() {
                @let resources: Vec<_> = group.changes.iter().map(EqualChange::first).collect();
                details.item open[is_small(view)] id={ "group-" (index) } data-actions=(filter_keys(&resources, false)) {
                    summary {
                        span.name { (PreEscaped(group.title())) } " "
                        span.where { "in " (group.count()) }
                    }
                    @if let Some(cause) = view.cause(group) {
                        p.note { "By " (PreEscaped(cause.text(|file| escape::html_code(&escape::line(file))))) }
                    }
                    p.stacks { (codes(group.stacks.iter().map(|id| id.as_str()), " ")) }
                    @for change in &group.changes {
                        @let resource = change.first();
                        @let kind = labels::Title::with_runtime(&resource.id, resource.runtime);
                        // Drift is not equal in all stacks, so each stack shows its own.
                        article.resource {
                            (change_of(resource, &format!("{} {}", kind.kind_label(), change.names().join(", "))))
                        }
                    }
                }
            }
        }
    }
}

/// Renders the changes of each stack.
pub(super) fn stacks(view: &PlanView<'_>) -> Markup {
    let open = is_small(view);
    html! {
        @if !view.stacks.is_empty() {
            section {
                h2 { "Stacks" }
                @for stack in &view.stacks { (stack_item(stack, open)) }
            }
        }
    }
}

fn stack_item(stack: &StackView<'_>, open: bool) -> Markup {
    let failed = stack.plan.error.is_some();
    let drifted = || {
        stack
            .plan
            .resources
            .iter()
            .filter(|resource| diff::differs_already(resource))
    };
    let shown: Vec<_> = stack.own.iter().copied().chain(drifted()).collect();
    html! {
        details.item open[open] data-actions=(filter_keys(&shown, failed)) {
            summary {
                span.name { (line(stack.plan.id.as_str())) } " "
                span.where {
                    @if !failed || stack.plan.fails_in_part() { (stack.counts()) }
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
                            (resource.action) " " (code(&full_title(resource))) ": "
                            a href={ "#group-" (index) } { "see \"Same change\"" }
                        }
                        (drift_of(resource))
                    }
                    None => (resource_item(resource)),
                }
            }
            @if stack.kept > 0 {
                p.same { (labels::plural(stack.kept, "object")) " taken over as they run: only the owner annotation is added" }
            }
            @for resource in drifted() {
                (resource_item(resource))
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
            (action(resource.action))
            " " (line(title))
        }
        @if resource.data_loss {
            p.note {
                strong { "permanently deletes data or releases an address" }
                @if let Some(loss) = labels::loss(resource) { ": " (prose(loss)) }
            }
        }
        @if !resource.replace.is_empty() {
            p.note { (fields("must be replaced: these changed: ", &resource.replace)) }
        }
        @if !resource.immutable.is_empty() {
            p.note {
                (fields("may have to be replaced: these cannot be changed in place: ", &resource.immutable))
            }
        }
        @for note in resource.notes.iter().skip(usize::from(labels::loss(resource).is_some())) {
            p.note { (prose(note)) }
        }
        (diff_lines(&diff::resource(resource, diff::DiffContext::Tree(3))))
    }
}

/// Renders the drift of a resource, separate from the change.
fn drift_of(resource: &ResourcePlan) -> Markup {
    let drift = diff::drift(resource, diff::DiffContext::Tree(3));
    html! {
        @if !drift.is_empty() {
            p.note { "Already different on the cluster, not from this pull request:" }
            (diff_lines(&diff::from_live(&drift, "Spec")))
        }
    }
}
