//! The input for the apply of one commit: the pending stacks, the reviews that count, and the approver of the plans.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    deployments::{DeploymentApprover, Deployments},
    forge_history::ForgeHistory,
    job::Job,
    policy::{
        active_policies::CommitPolicy, policy_check::PolicyCheck, review_gate::ReviewGate,
        reviews::MergedReviews,
    },
    trust::{approve_input::Approved, authority::DispatchApprovers},
    workflow_starter::DefaultBranchWorkflows,
};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId, apply_result::ApplyReport},
    secrets::Secrets,
};
use konverge_config::Config;
use konverge_forge::DefaultBranch;
use konverge_policy::Stage;
use konverge_run::{
    NewerCommits, OpenRevision, PendingStacks, SkippedRemovals, StateBackend, Target,
    apply::{ApplyOptions, Approver},
};

/// The commit that is applied, with its manual approvals.
pub(super) struct ApplyTarget<'a> {
    /// The commit to apply.
    pub head: &'a CommitId,
    /// The default branch.
    pub branch: &'a DefaultBranch,
    /// The digests that were approved by hand.
    pub approved: Approved,
    /// The people whose approvals of digests count.
    pub agreeing: DispatchApprovers,
}

/// The stacks that this run applies.
pub(super) struct StacksToApply {
    pub targets: Vec<Target>,
    /// The removals that the run skips.
    pub skipped: Option<SkippedRemovals>,
    pub newer: Arc<NewerCommits>,
}

impl StacksToApply {
    /// Finds the pending stacks of a commit.
    ///
    /// # Errors
    /// Errors of the store and of GitHub.
    pub(super) async fn find(
        job: &Job,
        tip: &ApplyTarget<'_>,
        revision: &OpenRevision,
        backend: &StateBackend,
    ) -> Result<Self, UserError> {
        let history = Box::new(ForgeHistory::new(job, tip.head, tip.branch));
        let PendingStacks { mut targets, newer } =
            PendingStacks::find(&job.run, revision, backend, history, |_| true).await?;
        let skipped = SkippedRemovals::split_off(&revision.layout, &mut targets);
        Ok(Self {
            targets,
            skipped,
            newer,
        })
    }

    /// Removes from a report the stacks that a newer run has applied, and adds the skipped removals. Returns the newer
    /// commit of each removed stack.
    pub(super) fn complete(&self, report: &mut ApplyReport) -> BTreeMap<StackId, CommitId> {
        let newer = self.newer.take_out_of(report);
        if let Some(skipped) = &self.skipped {
            report.stacks.extend(skipped.outcomes());
        }
        newer
    }
}

/// Returns the policies for the plans of a commit, with the facts about people that they need.
///
/// # Errors
/// The tip of the default branch cannot be read.
pub(super) fn policy_check(
    job: &Job,
    tip: &ApplyTarget<'_>,
    config: &Config,
    secrets: &Secrets,
    reviews: &MergedReviews,
) -> Result<PolicyCheck, UserError> {
    let trusted = job.repository.revision(&tip.branch.tip)?;
    let policy_check = PolicyCheck::new(
        job,
        CommitPolicy::from_config(config, Some(trusted.as_ref())),
        Stage::Apply,
        secrets,
    );
    Ok(policy_check
        .with_authors(reviews.authors.clone())
        .with_reviewed(reviews.policies.clone())
        .with_digest_approvers(tip.agreeing.clone()))
}

/// Returns the gate that approves plans by the reviews of the merged pull requests and by the manual approvals.
///
/// # Errors
/// The tip of the default branch cannot be read.
pub(super) fn review_gate(
    job: &Job,
    tip: &ApplyTarget<'_>,
    config: &Config,
    secrets: &Secrets,
    reviews: &MergedReviews,
) -> Result<ReviewGate, UserError> {
    Ok(ReviewGate::new(
        policy_check(job, tip, config, secrets, reviews)?,
        reviews.records.clone(),
        tip.approved.digests.clone(),
    ))
}

/// Returns the options for the apply of a commit.
pub(super) fn apply_options(
    job: &Job,
    target: &ApplyTarget<'_>,
    newer: &Arc<NewerCommits>,
    gate: ReviewGate,
    deployments: Option<&Arc<Deployments>>,
) -> ApplyOptions {
    let pull_requests = gate.pull_requests().into_iter().collect();
    let approver: Arc<dyn Approver> = match deployments {
        Some(deployments) => Arc::new(DeploymentApprover {
            gate,
            deployments: Arc::clone(deployments),
        }),
        None => Arc::new(gate),
    };
    ApplyOptions {
        approver,
        newer: Some(newer.clone()),
        commit: Some(target.head.clone()),
        merged: job.repository.commit_time(target.head).ok(),
        pull_requests,
        restore: false,
        allow_empty: true,
        rolled_back_to: None,
        workflows: DefaultBranchWorkflows::new(job, target.branch).map(|all| Arc::new(all) as _),
    }
}
