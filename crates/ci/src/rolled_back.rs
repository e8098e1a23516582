//! Finds stacks that somebody rolled back while the default branch still has the rolled-back change. The run of another
//! merge does not report them: its author can do nothing about them, and no pull request asks for that change again.

use std::collections::BTreeSet;

use crate::{job::Job, policy::reviews::MergedReviews};
use konverge_base::{
    error::UserError,
    model::{StackId, stack::Stack},
};
use konverge_config::Config;
use konverge_run::{OpenRevision, RevisionSpec, StateBackend, Target};
use konverge_state::{StateError, Versioned, WriteReason};

/// Returns the stopped stacks whose last write is a rollback, if their inputs at the head are those that were rolled
/// back and no merged pull request that is still to be applied shows them. Each of them gets a note.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn find(
    job: &Job,
    config: &Config,
    head: &OpenRevision,
    backend: &StateBackend,
    reviews: &MergedReviews,
    stopped: &[&Target],
) -> Result<BTreeSet<StackId>, StateError> {
    let mut found = BTreeSet::new();
    for target in stopped {
        let Some(stack) = &target.head else { continue };
        // If a merged pull request that was not applied yet shows the stack, the stop must be reported there.
        if let Some(prior) = backend.states.load(&target.id).await?
            && prior.reason == WriteReason::Rollback
            && reviews
                .pull_requests_with(&target.id)
                .all(|number| prior.applied_reviews.contains(&number))
            && is_what_was_rolled_back(job, config, head, stack, backend, &prior).await?
        {
            found.insert(target.id.clone());
            let what = prior.note.as_deref().unwrap_or("rolled back");
            job.run.notes.note(&format!(
                "{} was {what} by {}, and the default branch still has the change that was rolled back: the stack is not applied until \
                 a pull request reverts that change",
                target.id, prior.writer.actor
            ));
        }
    }
    Ok(found)
}

/// Returns true if the inputs of a stack at the head are those of the last apply before its rollback. Inputs that
/// cannot be compared count as different.
async fn is_what_was_rolled_back(
    job: &Job,
    config: &Config,
    head: &OpenRevision,
    stack: &Stack,
    backend: &StateBackend,
    prior: &Versioned,
) -> Result<bool, StateError> {
    let history = backend.states.history(&stack.id).await?;
    let before = history.into_iter().filter(|line| line.serial < prior.serial);
    let applied = before
        .filter_map(|line| line.document.ok())
        .find(|entry| entry.reason == WriteReason::Apply);
    let commit = applied.and_then(|entry| {
        let tried = entry.receipt.and_then(|receipt| receipt.commit);
        tried.or_else(|| entry.commit?.parse().ok())
    });
    let Some(commit) = commit else {
        return Ok(false);
    };
    let then = async || -> Result<bool, UserError> {
        job.repository.ensure(&commit, job.credentials.as_ref()).await?;
        let at = RevisionSpec::Commit(commit.clone());
        let then = OpenRevision::open_under(&job.run, &job.repository, &at, config)?;
        let Some(earlier) = then.layout.stack(&stack.id) else {
            return Ok(false);
        };
        Ok(then.analysis.input_digest(earlier)? == head.analysis.input_digest(stack)?)
    };
    Ok(then().await.unwrap_or(false))
}
