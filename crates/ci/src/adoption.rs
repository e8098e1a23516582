//! Takes over stacks that ran before Konverge came. A pull request that changes `konverge.adopt.yaml` previews the stacks
//! that the file names, and its review counts for those of which every value stays. After the merge the review gate
//! compares as always.

use std::collections::BTreeSet;

use crate::policy::reviews::MergedReviews;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        file_source::Source,
        plan::{Basis, StackPlan},
        takeover::{Takeover, TakeoverCounts},
    },
};
use konverge_report as report;
use konverge_run::{
    OpenRevision, RunContext, StateBackend, Target,
    adoption::{Adoption, FILE_NAME, RecordedStacks, differs},
    preview::Preview,
};
use konverge_state::IndexedStates;

/// The stacks that a pull request takes over: its `konverge.adopt.yaml` differs from the base's and names them, nothing is
/// recorded of them, and the pull request does not affect them otherwise.
///
/// # Errors
/// The file is invalid; errors of the store.
pub(super) async fn proposed(
    run: &RunContext,
    (base, head): (&OpenRevision, &OpenRevision),
    backend: &StateBackend,
    affected: &[Target],
) -> Result<Vec<Target>, UserError> {
    if !differs(base.source.as_ref(), head.source.as_ref()) {
        return Ok(Vec::new());
    }
    let Some(adoption) = Adoption::load(head.source.as_ref())? else {
        return Ok(Vec::new());
    };
    let known = backend.states.known().await?;
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let mut targets = Vec::new();
    for id in &adoption.stacks {
        match head.layout.stack(id) {
            Some(_) if recorded.has(id) || affected.iter().any(|target| target.id == *id) => {}
            Some(stack) => targets.push(Target::new(stack, base.layout.stack(id))),
            None => run.notes.note(&format!(
                "warning: {FILE_NAME} names `{id}`, which is not a stack here"
            )),
        }
    }
    Ok(targets)
}

/// Sets an error on stacks that cannot be taken over as they are, and takes them out of what is recorded as reviewed.
pub(super) fn refuse_changes(preview: &mut Preview, proposed: &BTreeSet<StackId>) {
    let mut refused = BTreeSet::new();
    let stacks = preview.plan.stacks.iter_mut();
    for stack in stacks.filter(|stack| proposed.contains(&stack.id)) {
        if Takeover::of(stack) == Takeover::Unchanged {
            continue;
        }
        refused.insert(stack.id.clone());
        stack.fails_as_before = false;
        if stack.error.is_none() {
            stack.error = Some(refusal(stack).body());
        }
    }
    preview.reviewed.retain(|stack| !refused.contains(&stack.id));
}

fn refusal(stack: &StackPlan) -> UserError {
    let counts = TakeoverCounts::of(stack);
    UserError::new(
        ErrorKind::Policy,
        format!(
            "{FILE_NAME} takes over stacks as they run, but of `{}` {} would change and {} would be made",
            stack.id,
            report::plural(counts.changed, "resource"),
            counts.new,
        ),
    )
    .hint(format!(
        "take `{}` out of {FILE_NAME} (`konverge adopt --write` does), and let a pull request that edits the stack show the change",
        stack.id
    ))
}

/// Takes the stacks out of an apply that are left alone while the repository is taken over: nothing is recorded of them,
/// and no merged pull request showed what their first apply does. Returns their number.
///
/// # Errors
/// The file is invalid; errors of the store.
pub(super) async fn leave_alone(
    tip: &dyn Source,
    (head, backend, known): (&OpenRevision, &StateBackend, &IndexedStates),
    reviews: &MergedReviews,
    targets: &mut Vec<Target>,
) -> Result<usize, UserError> {
    if Adoption::load(tip)?.is_none() {
        return Ok(0);
    }
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let shown = reviews.records.iter().flat_map(|record| &record.stacks);
    let shown: BTreeSet<_> = shown
        .filter(|stack| stack.basis == Basis::Live)
        .map(|stack| &stack.id)
        .collect();
    let before = targets.len();
    targets.retain(|target| target.head.is_none() || recorded.has(&target.id) || shown.contains(&target.id));
    Ok(before - targets.len())
}

/// What is said of the stacks that were left alone; empty if there are none.
pub(super) fn left_alone_text(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(
            "{} never applied, and no merged pull request showed what a first apply does: left alone while {FILE_NAME} is there. `konverge adopt` lists them.\n",
            match count {
                1 => "1 stack was".to_owned(),
                count => format!("{count} stacks were"),
            }
        ),
    }
}
