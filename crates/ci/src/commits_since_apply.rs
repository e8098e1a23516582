//! The commits that were pushed to the branch since the last apply. A run after several merges comments on each of
//! their pull requests, also on one without a recorded preview.

use std::collections::BTreeSet;

use super::job::Job;
use konverge_base::{error::UserError, model::CommitId};
use konverge_forge::{Forge, StatusState};
use konverge_state::{IndexedStates, Proven};

/// The maximum number of commits that are visited.
const MOST: usize = 50;

/// Returns the commits of the branch from `head` back to the commit of an earlier apply, the head first. `known` is the
/// index from before this run.
pub(super) async fn since_last_apply(
    job: &Job,
    client: &dyn Forge,
    head: &CommitId,
    known: &Proven<IndexedStates>,
) -> Vec<CommitId> {
    let applied: BTreeSet<&CommitId> = known
        .entries
        .values()
        .filter_map(|entry| entry.commit.as_ref())
        .collect();
    let mut commits = vec![head.clone()];
    // Without an earlier apply, the loop would end only at the limit. Then only the head counts.
    while !applied.is_empty() && commits.len() < MOST {
        match arrived_before(job, client, &applied, commits.last().unwrap_or(head)).await {
            Ok(Some(parent)) => commits.push(parent),
            Ok(None) => break,
            Err(error) => {
                job.run.warn(
                    "failed to find the other merged pull requests, so they get no comment",
                    error,
                );
                break;
            }
        }
    }
    commits
}

/// Returns the first parent of a commit, which was the tip of the branch before; `None` if there is none, or it was
/// applied. An error ends the search: a pull request may then miss its comment, but none gets the result of another
/// one.
async fn arrived_before(
    job: &Job,
    client: &dyn Forge,
    applied: &BTreeSet<&CommitId>,
    commit: &CommitId,
) -> Result<Option<CommitId>, UserError> {
    job.repository.ensure(commit, job.credentials.as_ref()).await?;
    let parent = job.repository.parents(commit)?.into_iter().next();
    let Some(parent) = parent.filter(|parent| !applied.contains(parent)) else {
        return Ok(None);
    };
    // A run without pending stacks leaves no commit in the index, so the status of the commit is checked, too.
    let statuses = client.newest_statuses(&parent).await?;
    let name = job.apply_status();
    let status = statuses.iter().find(|status| status.context == name);
    let is_done = status.is_some_and(|status| status.state == StatusState::Success);
    Ok((!is_done).then_some(parent))
}
