//! The rollouts of a job, which `konverge_rollout_driver` drives. The job decides three things for them: how an older
//! commit is opened, whose approval of a wave counts, and who approves a rollback.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use crate::{
    apply_input::{StacksToApply, apply_options, policy_check, review_gate},
    deployments::Deployments,
    job::Job,
    policy::{
        plan_approvals::CoveredCommits, policy_check::PolicyCheck, pull_head::PullHead,
        reviews::MergedReviews,
    },
    reconcile::RestoreApprover,
    trust::authority::ApplyTarget,
};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId, apply_result::ApplyReport},
};
use konverge_config::{Config, GateApproval};
use konverge_rollout_driver::{
    CarriedCommit, CommitReviews, EndedRollouts, GateDigest, JobPolicies, OlderCommit, RolloutJob,
    RolloutRecords,
};
use konverge_run::{Planner, StateBackend, Target, apply::Approver, environments::EnvironmentScope};

/// Drives the rollouts of a job as far as they go now.
pub(super) async fn run(
    job: &Job,
    tip: &ApplyTarget,
    head: CarriedCommit<'_>,
    scope: &EnvironmentScope<'_>,
    records: &RolloutRecords,
    guarded: &BTreeMap<String, Vec<(usize, Target)>>,
    succeeded: BTreeSet<StackId>,
) -> EndedRollouts {
    let rollout_job = RolloutJob {
        run: &job.run,
        repository: &job.repository,
        credentials: job.credentials.as_ref(),
        forge: tip.upstream.client.as_ref(),
        tip: &tip.upstream.branch.tip,
        given: &tip.approved.digests,
        scope,
        policies: &TipPolicies { job, tip },
    };
    konverge_rollout_driver::run(&rollout_job, head, records, guarded, succeeded).await
}

/// The policies of the tip of the default branch.
struct TipPolicies<'a> {
    job: &'a Job,
    tip: &'a ApplyTarget,
}

#[async_trait]
impl JobPolicies for TipPolicies<'_> {
    async fn open_commit(
        &self,
        commit: &CommitId,
        config: &Config,
        backend: &StateBackend,
    ) -> Result<OlderCommit<'_>, UserError> {
        let Self { job, tip } = *self;
        job.repository.ensure(commit, job.credentials.as_ref()).await?;
        let revision = job.open_merged(commit, config)?;
        revision.layout.require_module()?;
        let target = ApplyTarget {
            head: commit.clone(),
            ..tip.clone()
        };
        let pending = StacksToApply::find(job, &target, &revision, backend).await?;
        let reviews = MergedReviews::load(job, &target, backend).await?;
        let gate = review_gate(job, &target, config, &backend.secrets, &reviews)?;
        let deployments = Deployments::new(job, &target, config, &pending.targets)?;
        let options = apply_options(job, &target, &pending.newer, gate, deployments.as_ref());
        let planning = job
            .protected_planning(
                config.clone(),
                &tip.upstream.branch.tip,
                revision,
                backend.clone(),
            )
            .await?;
        Ok(OlderCommit {
            commit: commit.clone(),
            planning,
            pending: pending.targets,
            newer: pending.newer,
            options,
            reviews: Box::new(ReviewedCommit {
                job,
                tip,
                reviews: Arc::new(reviews),
                deployments,
            }),
        })
    }

    fn rollback_approver(
        &self,
        config: &Config,
        backend: &StateBackend,
    ) -> Result<Arc<dyn Approver>, UserError> {
        let reviews = MergedReviews::default();
        let check = policy_check(self.job, self.tip, config, &backend.secrets, &reviews)?;
        Ok(Arc::new(RestoreApprover {
            policy_check: PolicyCheck {
                restoring: true,
                ..check
            },
            of_drift: false,
        }))
    }
}

/// A commit that rollouts carry, with its reviews.
pub(super) struct ReviewedCommit<'a> {
    pub(super) job: &'a Job,
    pub(super) tip: &'a ApplyTarget,
    pub(super) reviews: Arc<MergedReviews>,
    /// The deployments that end with its rollouts. Those of the head end with the apply.
    pub(super) deployments: Option<Arc<Deployments>>,
}

impl ReviewedCommit<'_> {
    /// Returns the people who gave the digests of the run and did not contribute to the changes of these stacks.
    async fn givers(
        &self,
        check: &PolicyCheck,
        planning: &Planner,
        wave: &[Target],
    ) -> Result<BTreeSet<String>, UserError> {
        let records = self.reviews.records.iter();
        let records = records.filter(|record| {
            let shows = |target: &Target| record.stacks.iter().any(|stack| stack.id == target.id);
            wave.iter().any(shows)
        });
        let pulls: BTreeSet<_> = records.map(PullHead::from_record).collect();
        let pulls: Vec<_> = pulls.into_iter().collect();
        let mut people: BTreeSet<String> = check.digest_givers(&pulls, true).await.into_iter().collect();
        for target in wave {
            let since = planning.stored(&target.id).await?;
            let since = since.and_then(|prior| prior.state.commit);
            let covered = CoveredCommits {
                since: since.as_ref(),
                until: None,
            };
            people = check
                .without_contributors(people, target.folder(), &pulls, covered)
                .await?;
        }
        Ok(people)
    }
}

#[async_trait]
impl CommitReviews for ReviewedCommit<'_> {
    async fn judge_gate_digest(
        &self,
        planning: &Planner,
        approval: &GateApproval,
        wave: &[Target],
    ) -> Result<GateDigest, UserError> {
        let check = policy_check(
            self.job,
            self.tip,
            &planning.config,
            planning.secrets(),
            &self.reviews,
        )?;
        let mut people = self.givers(&check, planning, wave).await?;
        let names = approval.by.iter().map(|name| name.trim_start_matches('@'));
        let names: Vec<_> = names.collect();
        let teams: Vec<_> = names.iter().copied().filter(|name| name.contains('/')).collect();
        let teams = check.people.teams(teams, &people).await;
        people.retain(|login| names.iter().any(|name| teams.includes(name, login)));
        Ok(if people.is_empty() {
            GateDigest::ByNobody {
                unreadable: teams.unreadable.into_iter().next(),
            }
        } else {
            GateDigest::Counts
        })
    }

    async fn end_deployments(&self, report: &ApplyReport) {
        if let Some(deployments) = &self.deployments {
            deployments.end(report, None).await;
        }
    }
}
