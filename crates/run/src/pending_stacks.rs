//! The stacks with pending changes: `konverge ci` applies them after a merge, and `--pending` selects them.
//!
//! A change is pending if the recorded input digest differs from the head's, never because of `before..after` of a
//! push. So the next run also applies what a cancelled, failed or skipped run did not.

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
    /// The stacks to apply, without those to which a newer commit was applied.
    pub targets: Vec<Target>,
    /// The stacks to which a newer commit was applied.
    pub newer: Arc<NewerCommits>,
}

impl PendingStacks {
    /// Finds the pending stacks of a revision, and keeps those that are selected.
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

/// Returns the stacks whose recorded input digest differs from the head's, and the recorded stacks that are missing at
/// the head. `renamed` has the recorded identities that stacks of the head continue.
///
/// Only a stack that was removed from the repository is destroyed. Not destroyed are a stack whose folder is now left
/// out, and a Spec from a file.
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

/// Returns true if a record comes from a Spec file (`--spec`), or was imported without a folder: such a stack was never
/// in the repository.
fn is_of_spec_file(entry: &IndexEntry, prior: &StackState) -> bool {
    // An entry without a serial comes from a run that was killed, so the folder of its stack is unknown.
    entry.serial > 0 && prior.folder.path().is_none()
}
