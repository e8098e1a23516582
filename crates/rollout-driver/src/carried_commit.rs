//! The commit that a rollout applies, opened for applies: the head of the run, or an older commit whose rollout has
//! begun.

use std::sync::Arc;

use super::reviews::CommitReviews;
use konverge_base::model::{CommitId, RepoPath, StackId};
use konverge_run::{NewerCommits, Planner, Target, apply::ApplyOptions};

/// An opened commit for applies: the head of the run, or an older one.
#[derive(Clone, Copy)]
pub struct CarriedCommit<'a> {
    /// The commit to apply.
    pub commit: &'a CommitId,
    /// The planner for the stacks of the commit.
    pub planning: &'a Planner,
    /// The pending stacks of the rollout.
    pub pending: &'a [Target],
    /// The options for applies of the commit.
    pub options: &'a ApplyOptions,
    /// The reviews of the pull requests that were merged into the commit, and its deployments.
    pub reviews: &'a dyn CommitReviews,
}

/// An older commit that a rollout applies, opened for applies.
pub struct OlderCommit<'a> {
    /// The commit to apply.
    pub commit: CommitId,
    /// The planner for the stacks of the commit.
    pub planning: Planner,
    /// The pending stacks of the commit.
    pub pending: Vec<Target>,
    /// The stacks to which a newer commit was applied.
    pub newer: Arc<NewerCommits>,
    /// The options for applies of the commit.
    pub options: ApplyOptions,
    /// The reviews of the pull requests that were merged into the commit, and its deployments.
    pub reviews: Box<dyn CommitReviews + 'a>,
}

impl OlderCommit<'_> {
    /// Returns the commit in the form that the head of the run has.
    pub(super) fn as_carried(&self) -> CarriedCommit<'_> {
        CarriedCommit {
            commit: &self.commit,
            planning: &self.planning,
            pending: &self.pending,
            options: &self.options,
            reviews: self.reviews.as_ref(),
        }
    }
}

impl CarriedCommit<'_> {
    /// Returns the target for a stack of a rollout at this commit. A stack that the commit removes has only its id and
    /// folder.
    pub(super) fn target(&self, id: &StackId, folder: &RepoPath) -> Target {
        if let Some(target) = self.pending.iter().find(|target| target.id == *id) {
            return target.clone();
        }
        let head = self.planning.wanted.head();
        head.and_then(|head| head.layout.stack(id)).map_or_else(
            || Target::forgotten(id.clone(), folder.clone()),
            |stack| Target::new(stack, None),
        )
    }
}
