//! The commit that a rollout applies, opened for applies: the head of the run, or an older commit whose rollout has
//! begun.

use crate::{
    apply_input::{ApplyTarget, StacksToApply, apply_options, policy_check, review_gate},
    deployments::Deployments,
    job::Job,
    policy::{policy_check::PolicyCheck, reviews::MergedReviews},
};
use konverge_base::{error::UserError, model::CommitId};
use konverge_config::Config;
use konverge_run::{
    OpenRevision, Planner, RevisionSpec, SpecSource, StateBackend, Target, apply::ApplyOptions,
};

/// An opened commit for applies: the head of the run, or an older one from [`OlderCommit::as_carried`].
#[derive(Clone, Copy)]
pub(crate) struct CarriedCommit<'a> {
    /// The commit to apply.
    pub commit: &'a CommitId,
    /// The planner for the stacks of the commit.
    pub planning: &'a Planner,
    /// The pending stacks of the rollout.
    pub pending: &'a [Target],
    /// The options for applies of the commit.
    pub options: &'a ApplyOptions,
    /// The reviews of the pull requests that were merged into the commit.
    pub reviews: &'a MergedReviews,
}

/// An older commit that a rollout applies, opened for applies.
pub(super) struct OlderCommit {
    pub commit: CommitId,
    pub planning: Planner,
    pub pending: StacksToApply,
    pub options: ApplyOptions,
    pub reviews: MergedReviews,
    pub deployments: Option<std::sync::Arc<Deployments>>,
}

impl OlderCommit {
    /// Opens a commit of the default branch with the permissions of the branch's tip.
    pub(super) async fn open(
        job: &Job,
        tip: &ApplyTarget<'_>,
        config: &Config,
        backend: &StateBackend,
        commit: &CommitId,
    ) -> Result<Self, UserError> {
        job.repository.ensure(commit, job.credentials.as_ref()).await?;
        let at = RevisionSpec::Commit(commit.clone());
        let revision = OpenRevision::open_with_permissions_of(&job.run, &job.repository, &at, config)?;
        revision.layout.require_module()?;
        let target = ApplyTarget {
            head: commit,
            branch: tip.branch,
            approved: tip.approved.clone(),
            agreeing: tip.agreeing.clone(),
        };
        let pending = StacksToApply::find(job, &target, &revision, backend).await?;
        let reviews = MergedReviews::load(job, backend, commit, &tip.branch.name).await?;
        let gate = review_gate(job, &target, config, &backend.secrets, &reviews)?;
        let deployments = Deployments::new(job, config, &pending.targets, commit)?;
        let options = apply_options(job, &target, &pending.newer, gate, deployments.as_ref());
        let planning = job
            .protected_planning(config.clone(), &tip.branch.tip, revision, backend.clone())
            .await?;
        Ok(Self {
            commit: commit.clone(),
            planning,
            pending,
            options,
            reviews,
            deployments,
        })
    }

    /// Returns the commit in the form that the head of the run has.
    pub(super) fn as_carried(&self) -> CarriedCommit<'_> {
        CarriedCommit {
            commit: &self.commit,
            planning: &self.planning,
            pending: &self.pending.targets,
            options: &self.options,
            reviews: &self.reviews,
        }
    }
}

impl CarriedCommit<'_> {
    /// Returns the target for a stack of a rollout at this commit. A stack that the commit removes has only its id and
    /// folder.
    pub(super) fn target(
        &self,
        id: &konverge_base::model::StackId,
        folder: &konverge_base::model::RepoPath,
    ) -> Target {
        if let Some(target) = self.pending.iter().find(|target| target.id == *id) {
            return target.clone();
        }
        let stack = match &self.planning.wanted {
            SpecSource::Compiled { head, .. } => head.layout.stack(id),
            SpecSource::File(_) => None,
        };
        stack.map_or_else(
            || Target::forgotten(id.clone(), folder.clone()),
            |stack| Target::new(stack, None),
        )
    }

    /// Returns the policies for the plans of the commit.
    pub(super) fn policy_check(&self, job: &Job, tip: &ApplyTarget<'_>) -> Result<PolicyCheck, UserError> {
        let target = ApplyTarget {
            head: self.commit,
            branch: tip.branch,
            approved: tip.approved.clone(),
            agreeing: tip.agreeing.clone(),
        };
        policy_check(
            job,
            &target,
            &self.planning.config,
            self.planning.secrets(),
            self.reviews,
        )
    }
}
