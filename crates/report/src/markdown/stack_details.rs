//! Texts about one stack: its check run, its drift issue, its unreviewed changes.

use std::borrow::Cow;

use super::{
    bounded_writer::BoundedWriter,
    details,
    verbosity::{LADDER, Verbosity},
};
use crate::{RunInfo, diff, escape, labels};
use konverge_base::{
    error::UserError,
    model::{
        apply_result::StackOutcome,
        comment_marker::CommentMarker,
        plan::{ResourcePlan, StackPlan},
        review::ReviewUnit,
    },
};

/// The space for the line about omitted resources.
const LAST: usize = 120;

/// The whole diff of one stack for its check run: whole resources in at most `budget` bytes.
pub fn stack_text(plan: &StackPlan, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(1024));
    if let Some(error) = &plan.error {
        let lines: Vec<_> = escape::lines(&error.message).collect();
        let block = escape::fenced("text", &lines.join("\n"));
        if !page.try_push(&block) {
            page.try_push("The error is omitted to fit GitHub's limit.\n");
        }
        if !plan.fails_in_part() {
            return page.into_text();
        }
    }
    let _ = page.reserve(LAST);
    let omitted = resources(&mut page, &plan.resources);
    page.release(LAST);
    if omitted > 0 {
        page.try_push(&format!(
            "{} omitted to fit GitHub's limit.\n",
            labels::plural(omitted, "resource")
        ));
    }
    page.into_text()
}

fn resources(page: &mut BoundedWriter, resources: &[ResourcePlan]) -> usize {
    let mut omitted = 0;
    for resource in resources {
        let fitted = [&LADDER[0], &LADDER[3], &LADDER[5]]
            .into_iter()
            .any(|detail| page.try_push(&render_resource(resource, detail)));
        omitted += usize::from(!fitted);
    }
    omitted
}

/// A resource with its drift, because nothing else on this page shows the drift.
fn render_resource(resource: &ResourcePlan, detail: &Verbosity) -> String {
    let mut text = details::resource_block(resource, detail).text;
    let drift = diff::drift(resource, detail.context);
    if detail.diffs && !drift.is_empty() {
        let block = escape::fenced("diff", &drift.join("\n"));
        text.push_str(&format!("Already different on the cluster:\n\n{block}\n"));
    }
    text
}

/// What is known about the drift of a stack besides the difference.
pub struct DriftSeen<'a> {
    /// When it was first detected.
    pub since: &'a str,
    /// Why what was applied last cannot be restored.
    pub unrestorable: Option<&'a UserError>,
}

/// The issue of a drifted stack: what differs, since when it is known, and what to do. At most `budget`
/// bytes. The digest of the plan stands for the difference.
pub fn drift_issue(
    plan: &StackPlan,
    run: &RunInfo,
    marker: &CommentMarker,
    seen: &DriftSeen<'_>,
    budget: usize,
) -> String {
    let head = format!(
        "{}\n{} differs from what was applied last. Detected by {}; first detected {}.\n\n",
        marker.line(),
        escape::code(plan.id.as_str()),
        place(run, "a run"),
        escape::code(seen.since),
    );
    let advice = match seen.unrestorable {
        None => restore_advice(plan),
        Some(failure) => {
            let what = failure.message.lines().next().unwrap_or_default();
            let hints = failure.hints.iter();
            let hints: String = hints.map(|hint| format!("- {}\n", escape::code(hint))).collect();
            format!("No digest restores it: {}\n\n{hints}\n", escape::code(what))
        }
    };
    let footer = format!(
        "{advice}To keep the difference: add it to the code of the stack and merge. This issue closes by itself when the difference is gone.\n",
    );
    issue(&head, plan.resources.iter().map(Cow::Borrowed), &footer, budget)
}

fn restore_advice(plan: &StackPlan) -> String {
    format!(
        "To restore exactly this, run the workflow manually with `approve: {}`; an approval in its environment counts too. \
        The digest stands for this difference alone: if the stack differs in another way by then, nothing is changed, and the run says how.\n\n\
        By hand: {} restores everything in which the stack differs by then.\n\n",
        plan.digest,
        escape::code(&format!("konverge apply {} --recorded", plan.id))
    )
}

/// The comment on the issue of a stack whose drift was restored: by which run, and who approved it.
pub fn restored(stack: &StackOutcome, run: &RunInfo) -> String {
    let people = &stack.grounds.agreed_by;
    let people: Vec<_> = people.iter().map(|login| escape::code(login)).collect();
    let approved = match people.is_empty() {
        true => String::new(),
        false => format!(" Approved by {}.", people.join(", ")),
    };
    format!(
        "{} was restored by {}.{approved}\n",
        escape::code(stack.id.as_str()),
        place(run, "a run")
    )
}

/// The unreviewed changes of an apply: the diff, and what to do. At most `budget` bytes.
pub fn unreviewed(
    stack: &StackPlan,
    units: &[ReviewUnit],
    run: &RunInfo,
    marker: &CommentMarker,
    budget: usize,
) -> String {
    let head = format!(
        "{}\nKonverge stopped {} before changing anything: {} contains {} not shown in any merged pull request.\n\n",
        marker.line(),
        escape::code(stack.id.as_str()),
        place(run, "this run"),
        labels::plural(units.len(), "change")
    );
    let footer = format!(
        "To approve exactly this, run the workflow manually with `approve: {}`; an approval in its environment counts too. To undo it, revert the commit, or restore the live object.\n",
        stack.digest
    );
    let unseen = stack.resources.iter().filter_map(|resource| {
        let own: Vec<_> = units.iter().filter(|unit| unit.resource == resource.id).collect();
        let mut shown = resource.clone();
        shown
            .changes
            .retain(|c| own.iter().any(|unit| unit.path == c.path || unit.path.is_empty()));
        (!own.is_empty()).then_some(Cow::Owned(shown))
    });
    issue(&head, unseen, &footer, budget)
}

fn place(run: &RunInfo, words: &str) -> String {
    let link = |url: &String| escape::link(words, url);
    run.run_url.as_ref().map_or(words.to_owned(), link)
}

/// An issue: its head, as many whole resources as fit, what to do.
fn issue<'a>(
    head: &str,
    resources: impl Iterator<Item = Cow<'a, ResourcePlan>>,
    footer: &str,
    budget: usize,
) -> String {
    let mut page = BoundedWriter::new(budget.max(4096));
    page.try_push(head);
    let _ = page.reserve(footer.len() + LAST);
    let mut omitted = 0;
    for resource in resources {
        omitted += usize::from(!page.try_push(&difference(&resource)));
    }
    page.release(footer.len() + LAST);
    if omitted > 0 {
        page.try_push(&format!(
            "{} not shown here.\n\n",
            labels::plural(omitted, "resource")
        ));
    }
    page.try_push(footer);
    page.into_text()
}

/// A resource with all its differences, of any origin.
fn difference(resource: &ResourcePlan) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let mut lines = diff::resource(resource, diff::DiffContext::Tree(3));
    lines.extend(diff::drift(resource, diff::DiffContext::Tree(3)));
    let body = if lines.is_empty() {
        String::new()
    } else {
        escape::fenced("diff", &lines.join("\n"))
    };
    let notes: String = resource
        .notes
        .iter()
        .map(|note| format!("- {}\n", escape::code(note)))
        .collect();
    format!(
        "#### {} {}\n\n{body}{notes}\n",
        labels::action_word(resource.action),
        escape::code(&title.full())
    )
}
