//! The scheduled drift check: what differs from what was applied. One issue per stack, closed when the drift
//! is gone.

use std::collections::BTreeMap;

use super::{
    active_policies::CommitPolicy,
    drift_schedule::DriftSchedule,
    job::{Job, JobResult},
    notifications::Notifications,
    policy_check::PolicyCheck,
    publisher::Publisher,
    reconcile::{self, Restored, restored_stacks},
    timings::Timings,
};
use crate::{
    config::{Config, Reconcile, Span},
    error::{ErrorKind, UserError},
    model::{
        CommitId, StackId,
        apply_result::{ApplyReport, StackResult},
        comment_marker::{CommentMarker, MarkerKind},
        plan::{Plan, StackPlan},
        policy_finding::PolicyFinding,
    },
    ops::{KeyUse, OpenRevision, RevisionSpec, Target, drift, redact, renamed_stacks},
    policy::Stage,
    report::{
        self, RunInfo, SUMMARY_BUDGET,
        markdown::{DriftRound, drift_round},
    },
    state::IndexedStates,
};

/// Checks the applied stacks, with the code of the default branch.
pub(super) async fn run(job: &Job, head: &CommitId) -> Result<JobResult, UserError> {
    let feedback = Publisher::new(job);
    let result = check_and_publish(job, head, &feedback).await;
    let result = result.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    if let Err(failure) = &result {
        feedback.publish_failure(failure);
    }
    result
}

async fn check_and_publish(
    job: &Job,
    head: &CommitId,
    feedback: &Publisher<'_>,
) -> Result<JobResult, UserError> {
    let mut watch = Timings::start();
    job.repository.ensure(head, job.credentials.as_ref()).await?;
    let config = Config::load(job.repository.revision(head)?.as_ref())?;
    if config.state.url.is_none() {
        // Without a store no job knows what was applied.
        return Ok(JobResult {
            code: 0,
            text: "there is nothing to compare with: konverge.yaml configures no store (`state.url`)\n"
                .to_owned(),
        });
    }
    let key = match config.drift.reconcile {
        Reconcile::Never => KeyUse::Look,
        Reconcile::Restore => KeyUse::Make,
    };
    let backend = job.backend(&config, key).await?.ok_or_else(|| {
        UserError::new(
            ErrorKind::Config,
            "there is nothing to compare with: no store is configured",
        )
        .hint("set `state.url` in konverge.yaml")
    })?;
    let side = OpenRevision::open_under(
        &job.run,
        &job.repository,
        &RevisionSpec::Commit(head.clone()),
        &config,
    )?;
    let known = backend.states.known().await?;
    let mut rounds = DriftSchedule::load(job, &backend, &config).await;
    let renamed = renamed_stacks(&backend, &side.layout, known).await?;
    let applied = applied(known, &side, &renamed);
    let ids: Vec<_> = applied.iter().map(|target| target.id.clone()).collect();
    let due = rounds.select_due(applied, config.drift.stacks_per_run);
    let behind = pending_stacks(known, &side);
    let overdue = rounds.overdue();
    warn(job, &behind, overdue);
    let guardrails = PolicyCheck::new(
        job,
        CommitPolicy::from_config(&config, Some(side.source.as_ref())),
        Stage::Apply,
    );
    let budget = config.drift.budget.map(Span::duration);
    let label = config.drift.label.clone();
    let notices = Notifications::new(job, &config);
    watch.end_stage("open");
    let planning = job
        .protected_planning(config, head, side, backend.clone())
        .await?;
    let plan = drift::run(&planning, &due, budget).await?;
    watch.end_stage("look");
    let guardrails = guardrails.for_restoring();
    let Restored { report, findings } =
        reconcile::run(&planning, guardrails, &due, &plan, &behind, head).await?;
    watch.end_stage("restoring drift");
    rounds.record_results(&plan, &restored_stacks(&report));
    let info = RunInfo {
        head: Some(head.clone()),
        timings: watch.stages(),
        ..job.info()
    };
    let round = DriftRound {
        plan: &plan,
        applied: ids.len(),
        waiting: rounds.least_recently_checked(&ids),
        known_for: &rounds.known_for(),
        behind: &behind,
        overdue,
        restored: &report,
    };
    feedback.summary(&drift_round(&round, &info, SUMMARY_BUDGET));
    outputs(feedback, &plan, &report, &findings);
    let label = label.as_deref().unwrap_or("konverge-drift");
    let looked = DriftResult {
        plan: &plan,
        report: &report,
        rounds: &rounds,
        known,
    };
    issues(feedback, &looked, &info, label).await;
    notices.notify_drift(&plan, &restored_stacks(&report)).await;
    rounds.remember(job, &backend, |stack| ids.contains(stack)).await;
    let failed = plan.stacks.iter().any(|stack| stack.error.is_some())
        || report
            .stacks
            .iter()
            .any(|stack| stack.result == StackResult::Failed);
    Ok(JobResult {
        code: u8::from(failed),
        text: report::terminal::plan(&plan, report::terminal::Style::default()),
    })
}

/// The applied stacks, which can be compared.
fn applied(known: &IndexedStates, side: &OpenRevision, renamed: &BTreeMap<StackId, StackId>) -> Vec<Target> {
    let now = |id: &StackId| {
        renamed
            .iter()
            .find(|(_, earlier)| *earlier == id)
            .map(|(now, _)| now)
    };
    let applied = known.entries.iter().filter(|(_, entry)| entry.is_known());
    applied
        .map(|(id, entry)| match side.layout.stack(now(id).unwrap_or(id)) {
            Some(stack) => Target::new(stack, None),
            None => Target::forgotten(id.clone(), entry.folder.clone()),
        })
        .collect()
}

/// The stacks with pending changes.
fn pending_stacks(known: &IndexedStates, side: &OpenRevision) -> Vec<StackId> {
    side.pending_stacks(known).map(|stack| stack.id.clone()).collect()
}

fn warn(job: &Job, behind: &[StackId], overdue: Option<std::time::Duration>) {
    if !behind.is_empty() {
        let names: Vec<_> = behind.iter().map(StackId::as_str).collect();
        job.run.notes.note(&format!(
            "warning: the default branch is ahead of what is applied for {} stacks: {}",
            names.len(),
            names.join(", ")
        ));
    }
    if let Some(since) = overdue {
        job.run.notes.note(&format!(
            "warning: no successful drift check for {}",
            report::age(since)
        ));
    }
}

fn drifted_stacks(plan: &Plan) -> impl Iterator<Item = &StackPlan> {
    plan.stacks.iter().filter(|stack| stack.summary.changed() > 0)
}

fn outputs(feedback: &Publisher<'_>, plan: &Plan, report: &ApplyReport, findings: &[PolicyFinding]) {
    feedback.plan_outputs(plan, |stack| stack.summary, findings);
    let put_back = restored_stacks(report);
    let left = drifted_stacks(plan).any(|stack| !put_back.contains(&stack.id));
    feedback.outputs(&[("has-drift", left.to_string())]);
    feedback.annotate(plan, &[]);
}

/// The results of a drift check.
struct DriftResult<'a> {
    plan: &'a Plan,
    report: &'a ApplyReport,
    rounds: &'a DriftSchedule,
    known: &'a IndexedStates,
}

/// Maintains one issue for each stack with drift; those of other stacks are closed.
async fn issues(feedback: &Publisher<'_>, looked: &DriftResult<'_>, info: &RunInfo, label: &str) {
    let DriftResult {
        plan,
        report,
        rounds,
        known,
    } = looked;
    let put_back = restored_stacks(report);
    let issue = |stack: &StackPlan| {
        let marker = CommentMarker {
            head: info.head.as_ref().map(CommitId::to_string).unwrap_or_default(),
            run: info.run,
            attempt: info.attempt,
            digest: drift::digest(stack).to_string(),
            ..CommentMarker::new(MarkerKind::Drift, stack.id.as_str())
        };
        let since = rounds.since(&stack.id).strftime("%Y-%m-%d %H:%M UTC").to_string();
        let body = report::markdown::drift_issue(stack, info, &marker, &since, report::COMMENT_BUDGET);
        let title = format!("{} differs from what was applied", stack.id);
        (marker, title, body)
    };
    let open = drifted_stacks(plan).filter(|stack| !put_back.contains(&stack.id));
    let issues = open.map(issue).collect();
    let calm = |stack: &&StackPlan| stack.summary.changed() == 0 && stack.error.is_none();
    let gone = known.entries.iter().filter(|(_, entry)| !entry.is_known());
    let settled: Vec<_> = plan
        .stacks
        .iter()
        .filter(calm)
        .map(|stack| &stack.id)
        .chain(&put_back)
        .chain(gone.map(|(id, _)| id))
        .cloned()
        .collect();
    let settled = |stack: &str| settled.iter().any(|id| id.as_str() == stack);
    feedback.issues(label, MarkerKind::Drift, settled, issues).await;
}
