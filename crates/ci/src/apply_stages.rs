//! The stages of an apply of one commit: found → split → applied → concluded. The last one returns what happened, and
//! `apply_feedback.rs` publishes it. Two things are published earlier: deployments, which begin before their first
//! stack changes, and the end of the rollout of an older commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    adoption,
    apply_input::{StacksToApply, apply_options, review_gate},
    commits_since_apply,
    deployments::Deployments,
    drift_schedule::DriftSchedule,
    job::Job,
    policy::reviews::MergedReviews,
    rolled_back,
    rollout::{self, ReviewedCommit},
    trust::authority::ApplyTarget,
    workflow_coverage,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        policy_finding::PolicyFinding,
    },
    spans::Stages,
};
use konverge_config::Config;
use konverge_report::{self as report, RunInfo};
use konverge_rollout_driver::{CarriedCommit, EndedRollouts, GuardedTargets, RolloutRecords};
use konverge_run::{
    KeyUse, OpenRevision, Planner, StackClaims, StateBackend, Target,
    apply::{self, Decisions, EndedRun},
    environments::{EnvironmentScope, ScopedTargets},
};
use konverge_secrets::{Secrets, redact};
use konverge_state::{IndexedStates, Proven};

/// A finished apply of one commit.
pub(super) struct AppliedCommit {
    /// The outcomes of all stacks, without secrets.
    pub report: ApplyReport,
    /// The decisions about the plans. The stopped plans have no secrets.
    pub decisions: Decisions,
    /// The findings of the policies when the plans were approved or stopped, without secrets.
    pub findings: Vec<PolicyFinding>,
    /// The rollouts, without their outcomes and decisions.
    pub rollouts: EndedRollouts,
    /// The stacks that were skipped because a newer commit was applied to them.
    pub newer: BTreeMap<StackId, CommitId>,
    /// The stacks that are left alone while `konverge.adopt.yaml` exists.
    pub left_alone: BTreeSet<StackId>,
    /// The pending stacks of other environments.
    pub elsewhere: Vec<Target>,
    /// True if stacks wait for another environment, or a rollout waits.
    pub waits_for_others: bool,
    /// The commits of the branch since the last apply, the head first.
    pub arrived: Vec<CommitId>,
    /// The pull requests whose changes were applied, besides those of `arrived`.
    pub pulls: BTreeSet<u64>,
    pub deployments: Option<Arc<Deployments>>,
    pub info: RunInfo,
}

/// Applies what is pending in a commit.
///
/// # Errors
/// Errors of the configuration, the repository, the store or the forge. Errors of a stack are in its outcome.
pub(super) async fn run(
    job: &Job,
    target: &ApplyTarget,
    config: &Config,
    stages: &mut Stages,
) -> Result<AppliedCommit, UserError> {
    let scope = EnvironmentScope::new(job.authority.environment.as_deref(), config)?;
    let (backend, revision) = open_head(job, &target.head, config).await?;
    let apply = ApplyStages {
        job,
        target,
        config,
        scope: &scope,
        backend: &backend,
    };
    let found = apply.find(&revision).await?;
    let split = apply.split(&found, &revision)?;
    let applied = apply.apply(&found, &split, revision, stages).await?;
    apply.conclude(found, split, applied).await
}

/// Opens the store and the commit to apply.
async fn open_head(
    job: &Job,
    head: &CommitId,
    config: &Config,
) -> Result<(StateBackend, OpenRevision), UserError> {
    job.repository.ensure(head, job.credentials.as_ref()).await?;
    let backend = job.backend(config, KeyUse::Make).await?.ok_or_else(|| {
        UserError::new(
            ErrorKind::Config,
            "nothing is applied: no store is configured to keep the state in",
        )
        .hint("set `state.url` in konverge.yaml, for example `s3://my-bucket/konverge`")
    })?;
    let revision = job.open_merged(head, config)?;
    revision.layout.require_module()?;
    Ok((backend, revision))
}

/// The pending stacks, and what decides about them.
struct FoundStacks<'a> {
    /// The index before this run.
    known: &'a Proven<IndexedStates>,
    records: RolloutRecords,
    pending: StacksToApply,
    reviews: Arc<MergedReviews>,
    /// The stacks that no merged pull request has shown while the repository is taken over.
    left_alone: BTreeSet<StackId>,
}

/// The pending stacks, by what applies them.
struct SplitStacks {
    /// The stacks in no rollout.
    scoped: ScopedTargets,
    /// The stacks of each rollout, with their wave from 0.
    by_rollout: BTreeMap<String, Vec<(usize, Target)>>,
    /// The stacks that their rollouts refuse.
    refused: Vec<StackOutcome>,
}

/// The applies of this run.
struct AppliedStacks {
    planning: Planner,
    /// The stacks in no rollout.
    ended: EndedRun,
    rollouts: EndedRollouts,
    deployments: Option<Arc<Deployments>>,
}

/// The input of all stages.
struct ApplyStages<'a> {
    job: &'a Job,
    target: &'a ApplyTarget,
    config: &'a Config,
    scope: &'a EnvironmentScope<'a>,
    backend: &'a StateBackend,
}

impl<'a> ApplyStages<'a> {
    async fn find(&self, revision: &OpenRevision) -> Result<FoundStacks<'a>, UserError> {
        let (job, target) = (self.job, self.target);
        let (config, backend) = (self.config, self.backend);
        // The records are loaded before the pending stacks are listed. So a newer record shows later that another run
        // may have applied some of these stacks.
        let records = RolloutRecords::load(backend, config).await;
        warn_of_overdue_drift(job, backend, config).await;
        for line in records.overdue(config) {
            job.run.notes.warning(&line);
        }
        let known = backend.states.known().await?;
        backend.states.maintain_index(known).await?;
        revision.note_layout(&job.run);
        workflow_coverage::warn(job, config, revision);
        let mut pending = StacksToApply::find(job, target, revision, backend).await?;
        // Without a pending stack no review is needed, so the forge is not asked for pull requests.
        let reviews = if pending.targets.is_empty() {
            MergedReviews::default()
        } else {
            MergedReviews::load(job, target, backend).await?
        };
        let files = job.repository.revision(&target.upstream.branch.tip)?;
        let targets = &pending.targets;
        let left_alone =
            adoption::left_alone(files.as_ref(), revision, backend, known, &reviews, targets).await?;
        // A digest may belong to a stack that is not taken over yet. Only its plan can show that, so all stacks are
        // planned.
        if target.approved.digests.is_empty() {
            pending.targets.retain(|target| !left_alone.contains(&target.id));
        }
        Ok(FoundStacks {
            known,
            records: records.with_earlier(backend, config, &pending.targets).await,
            pending,
            reviews: Arc::new(reviews),
            left_alone,
        })
    }

    /// Splits the stacks: rollouts decide about their own stacks later, and stacks of other environments belong to
    /// other jobs.
    fn split(&self, found: &FoundStacks<'_>, revision: &OpenRevision) -> Result<SplitStacks, UserError> {
        let pending = found.pending.targets.clone();
        let split = GuardedTargets::split(self.config, revision, pending, &found.records)?;
        let guarded: Vec<_> = split.guarded().cloned().collect();
        Ok(SplitStacks {
            scoped: self.scope.select(split.free, &guarded)?,
            by_rollout: split.by_rollout,
            refused: split.refused,
        })
    }

    async fn apply(
        &self,
        FoundStacks {
            known,
            records,
            pending,
            reviews,
            ..
        }: &FoundStacks<'_>,
        SplitStacks {
            scoped, by_rollout, ..
        }: &SplitStacks,
        revision: OpenRevision,
        stages: &mut Stages,
    ) -> Result<AppliedStacks, UserError> {
        let (job, target) = (self.job, self.target);
        let (config, backend) = (self.config, self.backend);
        // One write to the index announces all stacks, instead of one write per stack.
        let ids: Vec<_> = scoped.targets.iter().map(|target| target.id.clone()).collect();
        backend.states.announce_run(known, &ids).await?;
        let gate = review_gate(job, target, config, &backend.secrets, reviews)?;
        let deployments = Deployments::new(job, target, config, &pending.targets)?;
        let options = apply_options(job, target, &pending.newer, gate, deployments.as_ref());
        let tip = &target.upstream.branch.tip;
        let mut planning = job
            .protected_planning(config.clone(), tip, revision, backend.clone())
            .await?;
        planning.claims = StackClaims::without(target.approved.without.clone());
        stages.next("plan and apply");
        let ended = apply::run(&planning, &scoped.targets, &options).await?;
        // Rollouts come after the stacks outside of rollouts, because `after` may let a stack of a wave wait for one of
        // these.
        let carried = CarriedCommit {
            commit: &target.head,
            planning: &planning,
            pending: &pending.targets,
            options: &options,
            reviews: &ReviewedCommit {
                job,
                tip: target,
                reviews: Arc::clone(reviews),
                deployments: None,
            },
        };
        let outcomes = ended.report.stacks.iter();
        let succeeded = outcomes.filter(|stack| apply::has_succeeded(stack.result));
        let succeeded = succeeded.map(|stack| stack.id.clone()).collect();
        let rollouts = rollout::run(job, target, carried, self.scope, records, by_rollout, succeeded).await;
        Ok(AppliedStacks {
            planning,
            ended,
            rollouts,
            deployments,
        })
    }

    /// Makes one list with all outcomes, also those of stacks that were refused or held back before the apply, and
    /// deletes the reviews that no stack needs any more.
    async fn conclude(
        &self,
        found: FoundStacks<'_>,
        split: SplitStacks,
        applied: AppliedStacks,
    ) -> Result<AppliedCommit, UserError> {
        let AppliedStacks {
            planning,
            ended: EndedRun {
                mut report,
                mut decisions,
            },
            mut rollouts,
            deployments,
        } = applied;
        let FoundStacks {
            known,
            pending,
            reviews,
            mut left_alone,
            ..
        } = found;
        decisions.extend(std::mem::take(&mut rollouts.decisions));
        report.stacks.append(&mut rollouts.outcomes);
        let left = split.refused.iter();
        let left = left.filter(|outcome| outcome.result == StackResult::Stopped);
        rollouts.kept_back.extend(left.map(|outcome| outcome.id.clone()));
        report.stacks.extend(split.refused);
        let newer = pending.complete(&mut report);
        let waits_for_others = !split.scoped.held_back.is_empty() || !rollouts.waits.is_empty();
        report.stacks.extend(split.scoped.held_back);
        report
            .stacks
            .sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
        // Everything below is published, so secrets are masked here.
        redact::report(&mut report, planning.secrets());
        // All stacks were planned because a digest may belong to any of them. A stack that no digest matched is left
        // alone.
        let is_meant = |stack: &StackOutcome| self.target.approved.digests.contains(&stack.digest);
        report.stacks.retain(|stack| {
            stack.result != StackResult::Stopped || !left_alone.contains(&stack.id) || is_meant(stack)
        });
        left_alone.retain(|id| !report.stacks.iter().any(|stack| stack.id == *id));
        self.leave_rolled_back(&planning, &pending.targets, &reviews, &mut report, &mut decisions)
            .await?;
        // The removals that were skipped are not in this list, so their reviews would look used. Then no review is
        // deleted.
        if pending.skipped.is_none() {
            // A stack whose rollout carries an older commit still needs the reviews of the head.
            let of_head = without(&report, &rollouts.of_older_commits);
            reviews
                .forget_used(self.job, self.backend, &pending.targets, &of_head)
                .await;
        }
        self.backend.save_index(&self.job.run).await;
        let counted = planning.counts();
        let info = RunInfo {
            compiled: counted.compiled,
            cached: counted.cached,
            ..self.job.info(&self.target.head)
        };
        let findings = mask(&mut decisions, planning.secrets());
        decisions
            .stopped
            .retain(|stopped| !left_alone.contains(&stopped.plan.id));
        Ok(AppliedCommit {
            arrived: if report.stacks.is_empty() {
                Vec::new()
            } else {
                let client = self.target.upstream.client.as_ref();
                commits_since_apply::since_last_apply(self.job, client, &self.target.head, known).await
            },
            pulls: reviews.pull_requests_of(&report),
            elsewhere: split.scoped.elsewhere,
            report,
            decisions,
            findings,
            rollouts,
            newer,
            left_alone,
            waits_for_others,
            deployments,
            info,
        })
    }

    /// Removes the stopped stacks that somebody rolled back on purpose. The author of another merge can do nothing
    /// about them, so they are not reported.
    async fn leave_rolled_back(
        &self,
        planning: &Planner,
        pending: &[Target],
        reviews: &MergedReviews,
        report: &mut ApplyReport,
        decisions: &mut Decisions,
    ) -> Result<(), UserError> {
        let Some(revision) = planning.wanted.head() else {
            return Ok(());
        };
        let is_stopped = |target: &&Target| {
            let mut stopped = decisions.stopped.iter();
            stopped.any(|stopped| stopped.plan.id == target.id)
        };
        let stopped: Vec<_> = pending.iter().filter(is_stopped).collect();
        let left =
            rolled_back::find(self.job, self.config, revision, self.backend, reviews, &stopped).await?;
        report.stacks.retain(|stack| !left.contains(&stack.id));
        decisions
            .stopped
            .retain(|stopped| !left.contains(&stopped.plan.id));
        Ok(())
    }
}

/// Masks the secrets of the stopped plans, and returns the findings of the policies with masked secrets.
fn mask(decisions: &mut Decisions, secrets: &Secrets) -> Vec<PolicyFinding> {
    for stopped in &mut decisions.stopped {
        redact::stack(&mut stopped.plan, secrets);
    }
    let mut findings: Vec<_> = std::mem::take(&mut decisions.findings).into_iter().collect();
    redact::findings(&mut findings, secrets);
    findings
}

/// Returns a report without some stacks.
pub(super) fn without(report: &ApplyReport, left_out: &BTreeSet<StackId>) -> ApplyReport {
    let stacks = report.stacks.iter().filter(|stack| !left_out.contains(&stack.id));
    ApplyReport {
        version: report.version,
        stacks: stacks.cloned().collect(),
    }
}

/// Warns if the last drift check is too long ago, because a schedule that does not run cannot report that itself.
async fn warn_of_overdue_drift(job: &Job, backend: &StateBackend, config: &Config) {
    if let Some(since) = DriftSchedule::load(job, backend, config).await.overdue() {
        job.run.notes.warning(&format!(
            "no successful drift check for {}: check that the scheduled job still runs",
            report::age(since)
        ));
    }
}
