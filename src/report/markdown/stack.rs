//! Texts about one stack: its check run, its drift issue, what nobody reviewed.

use super::{bodies, detail::LADDER, page::Page};
use crate::{
    model::{
        marker::Marker,
        plan::{ResourcePlan, StackPlan},
        review::Unit,
    },
    report::{RunInfo, diff, escape, label},
};

/// One stack's whole diff, for its check run: whole resources in at most `budget` bytes.
pub fn stack_text(plan: &StackPlan, budget: usize) -> String {
    let mut page = Page::new(budget.max(1024));
    if let Some(error) = &plan.error {
        let lines: Vec<_> = escape::lines(&error.message).collect();
        let block = escape::fenced("text", &lines.join("\n"));
        if !page.try_push(&block) {
            page.try_push("The error has no room here.\n");
        }
        return page.into_text();
    }
    const LAST: usize = 120;
    let _ = page.reserve(LAST);
    let omitted = resources(&mut page, &plan.resources);
    page.release(LAST);
    if omitted > 0 {
        page.try_push(&format!(
            "{} had no room here.\n",
            label::plural(omitted, "resource")
        ));
    }
    page.into_text()
}

fn resources(page: &mut Page, resources: &[ResourcePlan]) -> usize {
    let mut omitted = 0;
    for resource in resources {
        let fitted = [&LADDER[0], &LADDER[3], &LADDER[5]]
            .into_iter()
            .any(|detail| page.try_push(&bodies::resource_block(resource, detail)));
        omitted += usize::from(!fitted);
    }
    omitted
}

/// The issue of a drifted stack: what differs, since when it is known, and what to do. At most `budget` bytes.
pub fn drift_issue(plan: &StackPlan, run: &RunInfo, marker: &Marker, since: &str, budget: usize) -> String {
    let mut page = Page::new(budget.max(4096));
    let name = escape::code(plan.id.as_str());
    let place = run
        .run_url
        .as_ref()
        .map_or("a run".to_owned(), |url| escape::link("a run", url));
    page.try_push(&format!(
        "{}\n{name} differs from what was applied last. Seen by {place}; first seen {}.\n\nDigest of the difference: `{}`\n\n",
        marker.line(),
        escape::code(since),
        plan.digest.short()
    ));
    let footer = format!(
        "To put it back: `konverge apply {}` (or run the workflow by hand).\nTo keep it: write it into the stack's code and merge. This issue closes by itself when the difference is gone.\n",
        escape::line(plan.stack.as_str()).replace('`', "'")
    );
    let _ = page.reserve(footer.len() + 120);
    let mut omitted = 0;
    for resource in &plan.resources {
        let title = label::Title::of(&resource.id, resource.runtime);
        let mut lines = diff::drift(resource, diff::Context::Tree(3));
        lines.extend(diff::resource(resource, diff::Context::Tree(3)));
        let body = if lines.is_empty() {
            String::new()
        } else {
            escape::fenced("diff", &lines.join("\n"))
        };
        let block = format!(
            "#### {} {}\n\n{body}\n",
            label::word(resource.action),
            escape::code(&title.full())
        );
        omitted += usize::from(!page.try_push(&block));
    }
    page.release(footer.len() + 120);
    if omitted > 0 {
        page.try_push(&format!(
            "{} not shown here.\n\n",
            label::plural(omitted, "resource")
        ));
    }
    page.try_push(&footer);
    page.into_text()
}

/// What a merge would do that nobody reviewed: a difference, and how to go on. At most `budget` bytes.
pub fn unreviewed(
    stack: &StackPlan,
    units: &[Unit],
    run: &RunInfo,
    marker: &Marker,
    budget: usize,
) -> String {
    let mut page = Page::new(budget.max(4096));
    let place = run
        .run_url
        .as_ref()
        .map_or("this run".to_owned(), |url| escape::link("this run", url));
    page.try_push(&format!(
        "{}\n{} was stopped before anything of it was touched: {place} would do {} that no merged pull request showed to a reviewer.\n\n",
        marker.line(),
        escape::code(stack.id.as_str()),
        label::plural(units.len(), "thing")
    ));
    let digest = stack.digest.to_string();
    let footer = format!(
        "To agree to exactly this, run the workflow by hand with `approve: {digest}`, or approve that digest in the environment's review. To undo it, revert the change that brought it, or put the live object back.\n"
    );
    let _ = page.reserve(footer.len() + 120);
    let mut omitted = 0;
    for resource in &stack.resources {
        let own: Vec<_> = units.iter().filter(|u| u.resource == resource.id).collect();
        if own.is_empty() {
            continue;
        }
        let mut shown = resource.clone();
        shown
            .changes
            .retain(|c| own.iter().any(|u| u.path == c.path || u.path.is_empty()));
        let title = label::Title::of(&resource.id, resource.runtime);
        let mut lines = diff::resource(&shown, diff::Context::Tree(3));
        lines.extend(diff::drift(&shown, diff::Context::Tree(3)));
        let body = if lines.is_empty() {
            String::new()
        } else {
            escape::fenced("diff", &lines.join("\n"))
        };
        let block = format!(
            "#### {} {}\n\n{body}\n",
            label::word(resource.action),
            escape::code(&title.full())
        );
        omitted += usize::from(!page.try_push(&block));
    }
    page.release(footer.len() + 120);
    if omitted > 0 {
        page.try_push(&format!(
            "{} not shown here.\n\n",
            label::plural(omitted, "resource")
        ));
    }
    page.try_push(&footer);
    page.into_text()
}
