//! Restores drift that people approved by its digest: exactly the difference that a drift check showed, for exactly
//! that stack. The history of the checks tells which stack a digest belongs to. The [`ReviewGate`] checks under the
//! lease whether the difference is still the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    drift_job::{self, DriftResult},
    drift_schedule::DriftSchedule,
    job::{Job, JobResult},
    news::{self, ApplyDecisions},
    notifications::Notifications,
    policy::{
        active_policies::CommitPolicy,
        policy_check::PolicyCheck,
        review_gate::{ApprovedDrift, ReviewGate},
    },
    publisher::Publisher,
    reconcile::{Restored, apply_recorded},
    trust::{
        approve_input::Approved,
        authority::{DispatchApprovers, Upstream},
        reviewers,
    },
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, Digest, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        plan::StackPlan,
    },
    spans::Stages,
};
use konverge_config::Config;
use konverge_policy::Stage;
use konverge_report::{self as report, RunInfo, SUMMARY_BUDGET};
use konverge_run::{
    KeyUse, OpenRevision, Planner, RevisionSpec, StateBackend, Target, apply,
    drift::{self as drift_check, StackDrift},
    environments::EnvironmentScope,
    recorded_targets, renamed_stacks,
};
use konverge_secrets::redact;
use konverge_state::{IndexedStates, Proven};

/// The result of restoring the drift that approved digests belong to.
pub(super) struct Restoration {
    pub result: JobResult,
    /// The digests that matched known drift, and those that matched findings which were overridden for it.
    pub digests: BTreeSet<Digest>,
}

/// Restores the drift that the reviewers of the job's environment approved, after a drift check in the same run.
///
/// # Errors
/// Nobody approved the drift; errors of the configuration, the repository or the store.
pub(super) async fn run(job: &Job, upstream: &Upstream, approved: &Approved) -> Result<JobResult, UserError> {
    reviewers::require_run_approval(job, upstream.client.as_ref()).await?;
    let done = restore(job, upstream, &approved.digests, &DispatchApprovers::Environment).await?;
    let matched = done.as_ref().map(|done| &done.digests);
    let unmatched = approved.digests.iter();
    let unmatched = unmatched.filter(|digest| matched.is_none_or(|matched| !matched.contains(digest)));
    Publisher::new(job).note_unmatched(&unmatched.copied().collect());
    Ok(done.map_or(JobResult::SUCCESS, |done| done.result))
}

/// Restores the drift that these digests belong to; `None` if none of them belongs to known drift.
///
/// # Errors
/// Errors of the configuration, the repository or the store. An error of one stack is in the result.
pub(super) async fn restore(
    job: &Job,
    upstream: &Upstream,
    digests: &BTreeSet<Digest>,
    agreeing: &DispatchApprovers,
) -> Result<Option<Restoration>, UserError> {
    let publisher = Publisher::new(job);
    let done = restore_known(job, upstream, digests, agreeing, &publisher).await;
    let done = done.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    if let Err(failure) = &done {
        publisher.publish_failure(failure);
    }
    done
}

async fn restore_known(
    job: &Job,
    upstream: &Upstream,
    digests: &BTreeSet<Digest>,
    agreeing: &DispatchApprovers,
    publisher: &Publisher<'_>,
) -> Result<Option<Restoration>, UserError> {
    let mut stages = Stages::start("open");
    let head = &upstream.branch.tip;
    job.repository.ensure(head, job.credentials.as_ref()).await?;
    let trusted = job.repository.revision(head)?;
    let config = Config::load(trusted.as_ref())?;
    let Some(backend) = job.backend(&config, KeyUse::Make).await? else {
        return Ok(None);
    };
    // Select the stacks: the history of the checks tells which stack a digest belongs to.
    let history = DriftSchedule::load(job, &backend, &config).await;
    let mut drifted = history.stacks_with(digests);
    if drifted.is_empty() {
        return Ok(None);
    }
    let at_head = RevisionSpec::Commit(head.clone());
    let revision = OpenRevision::open_with_permissions_of(&job.run, &job.repository, &at_head, &config)?;
    let known = backend.states.known().await?;
    let renamed = renamed_stacks(&backend, &revision.layout, known).await?;
    let applied = drift_job::applied(&backend, known, &revision, &renamed).await;
    let targets = applied.iter().filter(|target| drifted.contains_key(&target.id));
    let scope = EnvironmentScope::new(job.authority.environment.as_deref(), &config)?;
    // Stacks of another environment are left to the job of that environment, with their digests.
    let targets: Vec<_> = targets.filter(|target| scope.covers(target)).cloned().collect();
    drifted.retain(|stack, _| targets.iter().any(|target| target.id == *stack));
    if targets.is_empty() {
        return Ok(None);
    }
    let policy = CommitPolicy::from_config(&config, Some(trusted.as_ref()));
    let policy_check = PolicyCheck {
        agreeing: agreeing.clone(),
        ..PolicyCheck::new(job, policy, Stage::Apply, &backend.secrets)
    };
    let notices = Notifications::new(job, &config);
    let planning = job
        .protected_planning(config, head, revision, backend.clone())
        .await?;
    stages.next("restore");
    // Compare before any lease is acquired, so that a stack without drift is not written to. The gate compares again
    // under the lease.
    let found = differences(&planning, &targets, publisher).await?;
    let differing = targets.iter().filter(|target| found.contains_key(&target.id));
    let differing: Vec<_> = differing.cloned().collect();
    let recorded = recorded_targets(&planning, &differing).await?;
    let before = commits_before(&backend, &recorded.0).await?;
    // Restore exactly the approved drift. Only the given digests count, and no review of a pull request does.
    let gate = ReviewGate::new(policy_check, Vec::new(), digests.clone());
    let gate = gate.for_restoring(ApprovedDrift { found, before });
    let (Restored { report, findings }, decisions) =
        apply_recorded(&planning, recorded, Arc::new(gate)).await?;
    let info = job.info(head);
    publisher.summary(&report::markdown::outcome(&report, &info, None, SUMMARY_BUDGET));
    publisher.apply_outputs(&report, &findings);
    // Check again, so that the issues show the remaining drift, with new digests.
    let after = CheckAfter {
        job,
        planning: &planning,
        known,
        applied: &applied,
        info: &info,
    };
    after.run(publisher, &targets, &report, history).await;
    let news = news::of_apply(
        &report,
        &ApplyDecisions {
            unreviewed: &[],
            plans: &decisions,
            rollouts: &[],
            kept_back: &BTreeSet::new(),
        },
    );
    notices.send(&news).await;
    Ok(Some(Restoration {
        digests: drifted.into_values().chain(decisions.matched).collect(),
        result: JobResult {
            code: apply::exit_code(&report, &job.run),
            text: report::outcome::text(&report, report::terminal::Style::default()),
        },
    }))
}

/// Returns the drift of the stacks that still differ. Each of the others gets a note, and is not written to.
async fn differences(
    planning: &Planner,
    targets: &[Target],
    publisher: &Publisher<'_>,
) -> Result<BTreeMap<StackId, StackPlan>, UserError> {
    let mut differing = BTreeMap::new();
    for StackDrift { plan, .. } in drift_check::differences(planning, targets, None).await? {
        if plan.error.is_none() && plan.summary.changed() == 0 {
            publisher.note(&format!(
                "{} no longer differs from what was applied: nothing was restored",
                plan.id
            ));
        } else {
            differing.insert(plan.id.clone(), plan);
        }
    }
    Ok(differing)
}

/// Returns the commit before the applied one for each stack, if its serial is still stored.
async fn commits_before(
    backend: &StateBackend,
    targets: &[Target],
) -> Result<BTreeMap<StackId, Option<CommitId>>, UserError> {
    let mut before = BTreeMap::new();
    for target in targets {
        let applied = target
            .recorded
            .as_ref()
            .and_then(|recorded| recorded.commit.as_ref());
        let serials = backend.states.history(&target.id).await?;
        let commits = serials
            .into_iter()
            .filter_map(|line| line.document.ok()?.commit?.parse().ok());
        let earlier = commits
            .into_iter()
            .find(|commit: &CommitId| Some(commit) != applied);
        before.insert(target.id.clone(), earlier);
    }
    Ok(before)
}

/// The drift check after the restoration, only of the restored stacks.
struct CheckAfter<'a> {
    job: &'a Job,
    planning: &'a Planner,
    known: &'a Proven<IndexedStates>,
    /// All stacks that were applied.
    applied: &'a [Target],
    info: &'a RunInfo,
}

impl CheckAfter<'_> {
    async fn run(
        &self,
        publisher: &Publisher<'_>,
        targets: &[Target],
        report: &ApplyReport,
        mut history: DriftSchedule,
    ) {
        let Self { job, planning, .. } = *self;
        let label = planning.config.drift.label();
        let restored = report
            .stacks
            .iter()
            .filter(|stack| stack.result == StackResult::Applied);
        let lines = restored.map(|stack| (stack.id.to_string(), self.line(stack)));
        publisher.comment_on_drift(label, &lines.collect()).await;
        let checked = match drift_check::run(planning, targets, None).await {
            Ok(checked) => checked,
            Err(failure) => {
                let failure = redact::failure(&failure, planning.secrets());
                return job
                    .run
                    .warn("failed to check which drift is left after the restore", failure);
            }
        };
        history.record_stacks(&checked, &[], &job.run.url());
        let looked = DriftResult {
            checked: &checked,
            restored: &[],
            rounds: &history,
            known: self.known,
            head: planning.wanted.head(),
        };
        let issues = drift_job::publish_issues(publisher, &looked, self.info, label).await;
        drift_job::publish_what_is_left(publisher, &looked);
        history.note_issues(&issues);
        if let Some(backend) = &planning.backend {
            let is_applied = |stack: &StackId| self.applied.iter().any(|target| target.id == *stack);
            history.remember(job, backend, is_applied).await;
        }
    }

    /// Returns the comment for the drift issue of a stack, which names who approved the restoration.
    fn line(&self, stack: &StackOutcome) -> String {
        report::markdown::restored(stack, self.info)
    }
}
