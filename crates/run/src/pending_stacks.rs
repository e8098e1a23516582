//! The stacks with pending changes: `konverge ci` applies them after a merge, and `--pending` selects them.
//!
//! Pending changes follow from the recorded input digests, never from `before..after`: the next run completes what a
//! cancelled, failed or skipped run did not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    OpenRevision, RunContext, StateBackend, Target,
    newer_commits::{BranchHistory, NewerCommits},
    renamed_stacks, stack_lookup,
};
use konverge_base::{
    error::UserError,
    model::{StackId, state::StackState},
};
use konverge_state::{IndexEntry, IndexedStates, Proven};

/// The stacks with pending changes.
pub struct PendingStacks {
    /// The stacks to apply; without those to which a newer commit was applied.
    pub targets: Vec<Target>,
    /// The stacks to which a newer commit was applied.
    pub newer: Arc<NewerCommits>,
}

impl PendingStacks {
    /// Compares a revision with what is recorded, and keeps the selected stacks.
    ///
    /// # Errors
    /// Errors of the store and of the history.
    pub async fn find(
        run: &RunContext,
        head: &OpenRevision,
        backend: &StateBackend,
        history: Box<dyn BranchHistory>,
        is_selected: impl Fn(&Target) -> bool,
    ) -> Result<Self, UserError> {
        let known = backend.states.known().await?;
        let renamed = renamed_stacks::renamed_stacks(backend, &head.layout, known).await?;
        let mut targets = pending_targets(head, backend, known, &renamed).await?;
        targets.retain(is_selected);
        let newer = NewerCommits::find(run, known, history).await?;
        Ok(Self {
            targets: newer.without(backend, targets, &renamed).await?,
            newer: Arc::new(newer),
        })
    }
}

/// The stacks whose recorded digest differs from the head's, and those that are recorded but missing at the
/// head. `renamed` are the recorded identities that stacks of the head continue.
///
/// The record of a folder that no longer defines a stack stays, and that of a Spec from a file: only what was
/// removed from the repository is destroyed.
///
/// # Errors
/// Errors of the store.
pub async fn pending_targets(
    head: &OpenRevision,
    backend: &StateBackend,
    known: &Proven<IndexedStates>,
    renamed: &BTreeMap<StackId, StackId>,
) -> Result<Vec<Target>, UserError> {
    let goes_on: BTreeSet<&StackId> = renamed.values().collect();
    let changed = head.changed_stacks(known)?.into_iter();
    let mut targets: Vec<_> = changed.map(|stack| Target::new(stack, None)).collect();
    let gone = known
        .entries
        .iter()
        .filter(|(id, entry)| entry.is_known() && head.layout.stack(id).is_none())
        .filter(|(id, entry)| !goes_on.contains(id) && !head.layout.leaves_out(entry.folder.or_root()));
    for (id, entry) in gone {
        let prior = stack_lookup::recorded_state(backend, id).await;
        let target = stack_lookup::forgotten(id, entry, prior.as_ref());
        let is_of_spec_file = prior.is_some_and(|prior| is_of_spec_file(entry, &prior));
        if !is_of_spec_file && !head.layout.leaves_out(target.folder()) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// Returns true if a record is of a Spec from a file (`--spec`), or imported without a folder: such a stack
/// was never in the repository.
fn is_of_spec_file(entry: &IndexEntry, prior: &StackState) -> bool {
    // An entry without a serial comes from a run that was killed, so the folder of the stack is unknown.
    entry.serial > 0 && prior.folder.path().is_none()
}
