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
    news, notifications,
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
    error::{ErrorBody, UserError},
    model::{CommitId, Digest, StackId, apply_result::StackResult, plan::StackPlan},
    spans::Stages,
};
use konverge_config::Config;
use konverge_policy::Stage;
use konverge_report::{self as report, RunInfo, SUMMARY_BUDGET};
use konverge_rollout_driver::EndedRollouts;
use konverge_run::{
    KeyUse, OpenRevision, Planner, StateBackend, Target,
    apply::{self, Decisions},
    drift::{self as drift_check, DriftReport, StackDrift},
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
    let steps = RestoreSteps {
        job,
        config: &config,
        backend: &backend,
        digests,
    };
    let history = DriftSchedule::load(job, &backend, &config).await;
    let drifted = history.stacks_with(digests);
    if drifted.is_empty() {
        return Ok(None);
    }
    let revision = job.open_merged(head, &config)?;
    let selected = steps.select(&revision, drifted).await?;
    if selected.targets.is_empty() {
        return Ok(None);
    }
    let policy = CommitPolicy::from_config(&config, Some(trusted.as_ref()));
    let policy_check = PolicyCheck {
        agreeing: agreeing.clone(),
        ..PolicyCheck::new(job, policy, Stage::Apply, &backend.secrets)
    };
    let planning = job
        .protected_planning(config.clone(), head, revision, backend.clone())
        .await?;
    stages.next("restore");
    let ended = steps.restore(&selected, planning, policy_check).await?;
    let info = job.info(head);
    // The result is published before the next check: if the job is ended during that check, the clusters are changed.
    steps.publish_result(&ended, &info, publisher).await;
    // Check again, so that the issues show the remaining drift, with new digests.
    let left = drift_check::run(&ended.planning, &selected.targets, None).await;
    let left = left.map_err(|failure| redact::failure(&failure, ended.planning.secrets()));
    steps
        .publish_left(&selected, &ended, left, history, (&info, publisher))
        .await;
    Ok(Some(steps.notify(selected, ended).await))
}

/// The input of all steps of a restoration.
struct RestoreSteps<'a> {
    job: &'a Job,
    config: &'a Config,
    backend: &'a StateBackend,
    /// The approved digests.
    digests: &'a BTreeSet<Digest>,
}

/// The stacks whose drift was approved.
struct SelectedStacks<'a> {
    known: &'a Proven<IndexedStates>,
    /// All stacks that were applied.
    applied: Vec<Target>,
    targets: Vec<Target>,
    /// The approved digest of each target.
    drifted: BTreeMap<StackId, Digest>,
}

/// A restoration that has ended. Nothing of it is published yet.
struct EndedRestore {
    planning: Planner,
    /// The stacks that no longer differed, so that they were not written to.
    undiffering: Vec<StackId>,
    restored: Restored,
    decisions: Decisions,
}

/// The difference of each stack from what was applied last, or why it could not be compared.
type Differences = BTreeMap<StackId, Result<StackPlan, UserError>>;

impl<'a> RestoreSteps<'a> {
    /// Selects the stacks of this job's environment. Stacks of another environment are left to the job of that
    /// environment, with their digests.
    async fn select(
        &self,
        revision: &OpenRevision,
        mut drifted: BTreeMap<StackId, Digest>,
    ) -> Result<SelectedStacks<'a>, UserError> {
        let known = self.backend.states.known().await?;
        let renamed = renamed_stacks(self.backend, &revision.layout, known).await?;
        let applied = drift_job::applied(self.backend, known, revision, &renamed).await;
        let scope = EnvironmentScope::new(self.job.authority.environment.as_deref(), self.config)?;
        let targets = applied.iter().filter(|target| drifted.contains_key(&target.id));
        let targets: Vec<_> = targets.filter(|target| scope.covers(target)).cloned().collect();
        drifted.retain(|stack, _| targets.iter().any(|target| target.id == *stack));
        Ok(SelectedStacks {
            known,
            applied,
            targets,
            drifted,
        })
    }

    /// Restores exactly the approved drift.
    async fn restore(
        &self,
        SelectedStacks { targets, .. }: &SelectedStacks<'_>,
        planning: Planner,
        policy_check: PolicyCheck,
    ) -> Result<EndedRestore, UserError> {
        // Compare before any lease is acquired, so that a stack without drift is not written to. The gate compares
        // again under the lease.
        let (differences, undiffering) = differences(&planning, targets).await?;
        let differing = targets
            .iter()
            .filter(|target| differences.contains_key(&target.id));
        let differing: Vec<_> = differing.cloned().collect();
        let recorded = recorded_targets(&planning, &differing).await?;
        let approved = self.with_commits_before(differences, &recorded.0).await?;
        // Only the given digests count, and no review of a pull request does.
        let gate = ReviewGate::new(policy_check, Vec::new(), self.digests.clone());
        let gate = Arc::new(gate.for_restoring(approved));
        let (restored, mut decisions) = apply_recorded(&planning, recorded, gate).await?;
        // No review covers a restoration, so a stack that the gate stopped is a failed one to who is notified.
        decisions.stopped.clear();
        Ok(EndedRestore {
            planning,
            undiffering,
            restored,
            decisions,
        })
    }

    /// Adds the commit before the applied one to each difference, if its serial is still stored.
    async fn with_commits_before(
        &self,
        mut differences: Differences,
        targets: &[Target],
    ) -> Result<BTreeMap<StackId, ApprovedDrift>, UserError> {
        let mut approved = BTreeMap::new();
        for target in targets {
            let recorded = target.recorded.as_ref();
            let applied = recorded.and_then(|recorded| recorded.commit.as_ref());
            let serials = self.backend.states.history(&target.id).await?;
            let mut commits = serials
                .into_iter()
                .filter_map(|line| line.document.ok()?.commit?.parse().ok());
            let before = commits.find(|commit: &CommitId| Some(commit) != applied);
            if let Some(difference) = differences.remove(&target.id) {
                approved.insert(target.id.clone(), ApprovedDrift { difference, before });
            }
        }
        Ok(approved)
    }

    /// Publishes the result of a restoration: the summary, the outputs, and a comment on the drift issue of each
    /// restored stack, which names who approved the restoration.
    async fn publish_result(&self, ended: &EndedRestore, info: &RunInfo, publisher: &Publisher<'_>) {
        let Restored { report, findings } = &ended.restored;
        for stack in &ended.undiffering {
            publisher.note(&format!(
                "{stack} no longer differs from what was applied: nothing was restored"
            ));
        }
        publisher.summary(&report::markdown::outcome(report, info, None, SUMMARY_BUDGET));
        publisher.apply_outputs(report, findings);
        let restored = report.stacks.iter();
        let restored = restored.filter(|stack| stack.result == StackResult::Applied);
        let lines = restored.map(|stack| (stack.id.to_string(), report::markdown::restored(stack, info)));
        let label = self.config.drift.label();
        publisher.comment_on_drift(label, &lines.collect()).await;
    }

    /// Publishes which drift is left: the issues, and the record of the check.
    async fn publish_left(
        &self,
        selected: &SelectedStacks<'_>,
        ended: &EndedRestore,
        left: Result<DriftReport, UserError>,
        mut history: DriftSchedule,
        (info, publisher): (&RunInfo, &Publisher<'_>),
    ) {
        let job = self.job;
        let checked = match left {
            Ok(checked) => checked,
            Err(failure) => {
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
            known: selected.known,
            head: ended.planning.wanted.head(),
        };
        let issues = drift_job::publish_issues(publisher, &looked, info, self.config.drift.label()).await;
        drift_job::publish_what_is_left(publisher, &looked);
        history.note_issues(&issues);
        let is_applied = |stack: &StackId| selected.applied.iter().any(|target| target.id == *stack);
        history.remember(job, self.backend, is_applied).await;
    }

    /// Sends the notifications, and returns the result of the job.
    async fn notify(&self, selected: SelectedStacks<'_>, ended: EndedRestore) -> Restoration {
        let report = &ended.restored.report;
        let news = news::of_apply(report, &ended.decisions, &EndedRollouts::default());
        notifications::send(self.job, self.config, &news).await;
        Restoration {
            result: JobResult {
                code: apply::exit_code(report, &self.job.run),
                text: report::outcome::text(report, report::terminal::Style::default()),
            },
            digests: selected
                .drifted
                .into_values()
                .chain(ended.decisions.matched)
                .collect(),
        }
    }
}

/// Compares the stacks with what was applied last. Returns the differences, and the stacks that no longer differ.
async fn differences(
    planning: &Planner,
    targets: &[Target],
) -> Result<(Differences, Vec<StackId>), UserError> {
    let (mut differing, mut undiffering) = (BTreeMap::new(), Vec::new());
    for StackDrift { plan, .. } in drift_check::differences(planning, targets, None).await? {
        match &plan.error {
            None if plan.summary.changed() == 0 => undiffering.push(plan.id),
            None => drop(differing.insert(plan.id.clone(), Ok(plan))),
            Some(error) => {
                let failure = not_compared(&plan.id, error);
                differing.insert(plan.id, Err(failure));
            }
        }
    }
    Ok((differing, undiffering))
}

fn not_compared(stack: &StackId, error: &ErrorBody) -> UserError {
    let what = format!(
        "{stack} was not restored: it could not be compared with what was applied: {}",
        error.message
    );
    let hints = error.hints.iter();
    hints.fold(UserError::new(error.kind, what), |failure, hint| {
        failure.hint(hint)
    })
}
