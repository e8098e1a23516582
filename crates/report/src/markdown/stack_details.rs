//! Texts about one stack: its check run, its drift issue, its unreviewed changes.

use super::{
    bounded_writer::BoundedWriter,
    details::{self, Detail},
};
use crate::{RunInfo, diff, drift_text::drift_word, escape, labels};
use konverge_base::{
    error::UserError,
    model::{
        Digest,
        apply_result::StackOutcome,
        comment_marker::CommentMarker,
        plan::{ResourcePlan, StackPlan},
        review::ReviewUnit,
    },
};

/// The documentation of the workflow that keeps drift in the code.
const KEEP: &str = "https://konverge.github.io/konverge/guides/code-changes/#keep-a-hotfix";

/// The room in bytes for the line about omitted resources.
const LAST: usize = 120;

/// Renders the whole diff of one stack for its check run: as many whole resources as fit in `budget` bytes.
pub fn stack_text(plan: &StackPlan, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(1024));
    if let Some(error) = &plan.error {
        let lines: Vec<_> = escape::lines(&error.message).collect();
        let block = escape::fenced("text", &lines.join("\n"));
        if !page.try_push(&block) {
            page.try_push("The error is omitted to fit the size limit.\n");
        }
        if !plan.fails_in_part() {
            return page.into_text();
        }
    }
    fitted(page, &plan.resources, render_resource)
}

/// Renders the drift of a stack, from the live values to the applied ones.
pub(super) fn drift_text(plan: &StackPlan, budget: usize) -> String {
    let page = BoundedWriter::new(budget.max(1024));
    fitted(page, &plan.resources, |resource, detail| match detail.context() {
        Some(context) => drift_difference(resource, context),
        None => format!("#### {}\n\n", drift_title(resource)),
    })
}

/// Adds as many whole resources as fit.
fn fitted(
    mut page: BoundedWriter,
    resources: &[ResourcePlan],
    render: impl Fn(&ResourcePlan, Detail) -> String,
) -> String {
    page.reserve(LAST);
    let mut fits = |resource: &ResourcePlan| {
        let mut details = Detail::ALL.into_iter();
        details.any(|detail| page.try_push(&render(resource, detail)))
    };
    let omitted = resources.iter().filter(|resource| !fits(resource)).count();
    page.release(LAST);
    if omitted > 0 {
        page.try_push(&format!(
            "{} omitted to fit the size limit.\n",
            labels::plural(omitted, "resource")
        ));
    }
    page.into_text()
}

/// Renders a resource with its drift, because this page shows the drift nowhere else.
fn render_resource(resource: &ResourcePlan, detail: Detail) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let mut text = details::resource_block(resource, &escape::code(&title.full()), detail).text;
    let drift = detail.context().map(|context| diff::drift(resource, context));
    if let Some(drift) = drift.filter(|drift| !drift.is_empty()) {
        let block = escape::fenced("diff", &diff::from_live(&drift, "Spec").join("\n"));
        text.push_str(&format!("Already different on the cluster:\n\n{block}\n"));
    }
    text
}

/// The note about differences that do not count as drift.
const NOT_COMPARED: &str = "Of a Kubernetes object only what the Spec sets is compared: what somebody adds beside that, such as `suspend: true`, a sidecar or a key, is no drift.";

/// Data about the drift of a stack besides the difference.
pub struct DriftSeen<'a> {
    /// The time at which the drift was first detected.
    pub since: &'a str,
    /// The reason why the last apply cannot be restored; `None` if it can.
    pub unrestorable: Option<&'a UserError>,
    /// The file of the workflow that restores drift by its digest, such as `konverge.yml`.
    pub workflow: &'a str,
    /// The method by which a person starts this workflow.
    pub start: ManualStart,
    /// The method by which a person can keep the drift in the code.
    pub keeping: DriftKeeping,
}

/// The method by which a person starts a job of the forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManualStart {
    /// The person runs a command of GitHub's CLI.
    Command,
    /// The person uses the web page of the workflow.
    Workflow,
    /// The person starts a pipeline of the default branch, because the repository has one pipeline for all jobs.
    Pipeline,
}

impl ManualStart {
    /// Returns the sentence that tells how to start a workflow with a digest as its input.
    fn with(self, workflow: &str, input: &str, digest: Digest) -> String {
        let given = escape::code(&format!("{input}: {digest}"));
        match self {
            Self::Command => escape::code(&format!("gh workflow run {workflow} -f {input}={digest}")),
            Self::Workflow => format!("run the workflow {} by hand with {given}", escape::code(workflow)),
            Self::Pipeline => format!("run the pipeline of the default branch with {given}"),
        }
    }
}

/// The method by which the live values of a drifted stack can be written into its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftKeeping {
    /// The repository has the workflow `konverge-keep`, or a job of its pipeline with that name.
    ByWorkflow,
    /// The command `konverge set --keep` finds the attributes to edit.
    BySet,
    /// The change must be made by hand, because no attribute of the code can hold the difference: an object or the
    /// stack itself is gone.
    ByHand,
}

impl DriftKeeping {
    /// Returns the advice, with the digest of the difference.
    fn advice(self, plan: &StackPlan, start: ManualStart) -> String {
        let digest = plan.digest;
        let set = escape::code(&format!(
            "konverge set {} --keep {digest} --pull-request",
            plan.id
        ));
        let by_workflow = match self {
            Self::ByWorkflow => format!(
                "To keep exactly this: {}. It finds the attributes and opens a pull request, or says here why it cannot.\n\n",
                start.with("konverge-keep", "keep", digest)
            ),
            Self::BySet => format!(
                "To keep exactly this: {set} finds the attributes and opens a pull request. [The guide]({KEEP}) has a workflow for it.\n\n"
            ),
            Self::ByHand => String::new(),
        };
        let by_hand = match self {
            Self::ByWorkflow => format!("By hand: {set}, or add it to the code of the stack."),
            Self::BySet => "Or add it to the code of the stack.".to_owned(),
            Self::ByHand => "To keep this, change the code of the stack.".to_owned(),
        };
        format!("{by_workflow}{by_hand} Merge it: this issue closes by itself when the difference is gone.\n")
    }
}

/// Renders the issue of a drifted stack in at most `budget` bytes: the difference, the time of its detection, and the
/// possible actions. The digest of `plan` is that of the difference.
pub fn drift_issue(
    plan: &StackPlan,
    run: &RunInfo,
    marker: &CommentMarker,
    seen: &DriftSeen<'_>,
    budget: usize,
) -> String {
    let head = format!(
        "{}\n{} differs from what was applied last. Detected by {}; first detected {}. In a diff, `-` is live now and `+` is what was applied last. {NOT_COMPARED}\n\n",
        marker.line(),
        escape::code(plan.id.as_str()),
        place(run, "a run"),
        escape::code(seen.since),
    );
    let advice = match seen.unrestorable {
        None => restore_advice(plan, &seen.start.with(seen.workflow, "approve", plan.digest)),
        Some(failure) => {
            let what = failure.message.lines().next().unwrap_or_default();
            let hints = failure.hints.iter();
            let hints: String = hints.map(|hint| format!("- {}\n", escape::prose(hint))).collect();
            format!("No digest restores it: {}\n\n{hints}\n", escape::code(what))
        }
    };
    let footer = advice + &seen.keeping.advice(plan, seen.start);
    let differences = plan.resources.iter();
    let differences = differences.map(|resource| drift_difference(resource, diff::DiffContext::Tree(3)));
    issue(&head, differences, &footer, budget)
}

fn restore_advice(plan: &StackPlan, start: &str) -> String {
    format!(
        "To restore exactly this: {start}; an approval in its environment counts too. \
        The digest stands for this difference alone: if the stack differs in another way by then, nothing is changed, and the run says how.\n\n\
        By hand: {} restores everything in which the stack differs by then.\n\n",
        escape::code(&format!("konverge apply {} --recorded", plan.id))
    )
}

/// Renders the comment on the issue of a restored stack: by which run, and who approved it.
pub fn restored(stack: &StackOutcome, run: &RunInfo) -> String {
    let people = &stack.grounds.agreed_by;
    let people: Vec<_> = people.iter().map(|login| escape::code(login)).collect();
    let approved = if people.is_empty() {
        String::new()
    } else {
        format!(" Approved by {}.", people.join(", "))
    };
    format!(
        "{} was restored by {}.{approved}\n",
        escape::code(stack.id.as_str()),
        place(run, "a run")
    )
}

/// Renders the unreviewed changes of an apply in at most `budget` bytes: the diff, and the possible actions.
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
            .retain(|c| own.iter().any(|unit| unit.path == c.path || unit.path.is_root()));
        (!own.is_empty()).then(|| difference(&shown))
    });
    issue(&head, unseen, &footer, budget)
}

fn place(run: &RunInfo, words: &str) -> String {
    let link = |url: &String| escape::link(words, url);
    run.run_url.as_ref().map_or(words.to_owned(), link)
}

/// Renders an issue: its head, as many whole resources as fit, and its footer.
fn issue(head: &str, resources: impl Iterator<Item = String>, footer: &str, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(4096));
    page.try_push(head);
    page.reserve(footer.len() + LAST);
    let omitted = page.push_each(resources);
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

/// Renders a resource with all of its differences, whatever their origin.
fn difference(resource: &ResourcePlan) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let mut lines = diff::resource(resource, diff::DiffContext::Tree(3));
    lines.extend(diff::drift(resource, diff::DiffContext::Tree(3)));
    let title = format!("{} {}", resource.action, escape::code(&title.full()));
    resource_text(&title, &lines, resource)
}

/// Renders the drift of a resource, from the live values to the applied ones.
fn drift_difference(resource: &ResourcePlan, context: diff::DiffContext) -> String {
    let mut lines = diff::resource(resource, context);
    lines.extend(diff::drift(resource, context));
    resource_text(
        &drift_title(resource),
        &diff::from_live(&lines, "applied last"),
        resource,
    )
}

/// Returns the title of a drifted resource: `changed v1 ConfigMap shop/settings`.
fn drift_title(resource: &ResourcePlan) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    format!("{} {}", drift_word(resource.action), escape::code(&title.full()))
}

fn resource_text(title: &str, lines: &[String], resource: &ResourcePlan) -> String {
    let body = if lines.is_empty() {
        String::new()
    } else {
        escape::fenced("diff", &lines.join("\n")) + "\n"
    };
    format!(
        "#### {title}\n\n{body}{}",
        escape::bullets(resource.notes.iter().map(|note| escape::prose(note)))
    )
}
