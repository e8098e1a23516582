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
    trust::authority::ApplyTarget,
    workflow_starter::DefaultBranchWorkflows,
};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId, apply_result::ApplyReport},
};
use konverge_config::Config;
use konverge_policy::Stage;
use konverge_run::{
    NewerCommits, OpenRevision, PendingStacks, SkippedRemovals, StateBackend, Target,
    apply::{ApplyOptions, Approver},
};
use konverge_secrets::Secrets;

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
        target: &ApplyTarget,
        revision: &OpenRevision,
        backend: &StateBackend,
    ) -> Result<Self, UserError> {
        let history = Box::new(ForgeHistory::new(&target.upstream, &target.head));
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
    target: &ApplyTarget,
    config: &Config,
    secrets: &Secrets,
    reviews: &MergedReviews,
) -> Result<PolicyCheck, UserError> {
    let trusted = job.repository.revision(&target.upstream.branch.tip)?;
    let policy = CommitPolicy::from_config(config, Some(trusted.as_ref()));
    Ok(PolicyCheck {
        authors: reviews.authors.clone(),
        reviewed: reviews.policies.clone(),
        agreeing: target.agreeing.clone(),
        ..PolicyCheck::new(job, policy, Stage::Apply, secrets)
    })
}

/// Returns the gate that approves plans by the reviews of the merged pull requests and by the manual approvals.
///
/// # Errors
/// The tip of the default branch cannot be read.
pub(super) fn review_gate(
    job: &Job,
    target: &ApplyTarget,
    config: &Config,
    secrets: &Secrets,
    reviews: &MergedReviews,
) -> Result<ReviewGate, UserError> {
    Ok(ReviewGate::new(
        policy_check(job, target, config, secrets, reviews)?,
        reviews.records.clone(),
        target.approved.digests.clone(),
    ))
}

/// Returns the options for the apply of a commit.
pub(super) fn apply_options(
    job: &Job,
    target: &ApplyTarget,
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
        newer: Some(newer.clone()),
        commit: Some(target.head.clone()),
        merged: job.repository.commit_time(&target.head).ok(),
        pull_requests,
        allow_empty: true,
        workflows: Some(Arc::new(DefaultBranchWorkflows::new(job, &target.upstream))),
        ..ApplyOptions::new(approver)
    }
}
