//! The commits that were pushed to the branch since the last apply. A run after several merges comments on each of
//! their pull requests, also on one without a recorded preview.

use std::collections::BTreeSet;

use super::job::Job;
use konverge_base::model::CommitId;
use konverge_forge::StatusState;
use konverge_repo::git::GitError;
use konverge_state::{IndexedStates, Proven};

/// The maximum number of commits that are visited.
const MOST: usize = 50;

/// Returns the commits of the branch from `head` back to the commit of an earlier apply, the head first. `known` is the
/// index from before this run.
pub(super) async fn since_last_apply(
    job: &Job,
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
        let parent = match parent(job, commits.last().unwrap_or(head)).await {
            Ok(Some(parent)) => parent,
            Ok(None) => break,
            Err(error) => {
                job.run.warn(
                    "failed to find the other merged pull requests, so they get no comment",
                    error,
                );
                break;
            }
        };
        // A run without pending stacks leaves no commit in the index, so the status of the commit is checked, too.
        if applied.contains(&parent) || is_done(job, &parent).await {
            break;
        }
        commits.push(parent);
    }
    commits
}

/// Returns the first parent of a commit, which was the tip of the branch before.
async fn parent(job: &Job, commit: &CommitId) -> Result<Option<CommitId>, GitError> {
    job.repository.ensure(commit, job.credentials.as_ref()).await?;
    Ok(job.repository.parents(commit)?.into_iter().next())
}

/// Returns true if the run for this commit succeeded, even without pending stacks. Also returns true if GitHub does not
/// respond: a pull request may then miss its comment, but none gets the result of another one.
async fn is_done(job: &Job, commit: &CommitId) -> bool {
    let Some(client) = &job.client else { return true };
    match client.newest_statuses(commit).await {
        Ok(statuses) => statuses
            .iter()
            .find(|status| status.context == job.apply_status())
            .is_some_and(|status| status.state == StatusState::Success),
        Err(error) => {
            job.run.warn(
                "failed to find the other merged pull requests, so they get no comment",
                error,
            );
            true
        }
    }
}
