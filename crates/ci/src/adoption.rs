//! Takes over stacks that ran before Konverge was used. A pull request that changes `konverge.adopt.yaml` previews the
//! stacks that the file names, and its review counts for each stack whose values all stay the same. After the merge,
//! the review gate compares the plan with the review, as for any other stack.

use std::collections::BTreeSet;

use crate::policy::reviews::MergedReviews;
use konverge_base::{
    error::UserError,
    model::{StackId, file_source::Source, plan::Basis},
};
use konverge_run::{
    OpenRevision, StateBackend, Target,
    adoption::{Adoption, RecordedStacks},
};
pub(super) use konverge_run::{
    adopted_stacks::{add, refuse_changes},
    adoption::left_alone_text,
};
use konverge_state::{IndexedStates, Proven};

/// Returns the stacks that an apply leaves alone while `konverge.adopt.yaml` exists: those without a recorded state
/// whose first apply no merged pull request has shown.
///
/// # Errors
/// `konverge.adopt.yaml` is invalid; errors of the store.
pub(super) async fn left_alone(
    tip: &dyn Source,
    head: &OpenRevision,
    backend: &StateBackend,
    known: &Proven<IndexedStates>,
    reviews: &MergedReviews,
    targets: &[Target],
) -> Result<BTreeSet<StackId>, UserError> {
    if Adoption::load(tip)?.is_none() {
        return Ok(BTreeSet::new());
    }
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let shown = reviews.records.iter().flat_map(|record| &record.stacks);
    let shown: BTreeSet<_> = shown
        .filter(|stack| stack.basis == Basis::Live)
        .map(|stack| &stack.id)
        .collect();
    let unseen = targets
        .iter()
        .filter(|target| target.head.is_some() && !recorded.has(&target.id) && !shown.contains(&target.id));
    Ok(unseen.map(|target| target.id.clone()).collect())
}
