//! The apply after a merge: applies pending changes that were reviewed. `crates/run/src/pending_stacks.rs` finds the
//! stacks.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    adoption,
    apply_input::{ApplyTarget, StacksToApply, apply_options, review_gate},
    commits_since_apply,
    deployments::Deployments,
    drift_schedule::DriftSchedule,
    environments::{EnvironmentScope, ScopedTargets},
    job::{Job, JobResult},
    news::ApplyDecisions,
    notifications::Notifications,
    policy::reviews::MergedReviews,
    publisher::Publisher,
    restore,
    result_counts::counts,
    rolled_back,
    rollout::{self, CarriedCommit, GuardedTargets, PendingRollouts, RolloutEvent, RolloutRecords},
    trust::{approve_input::Approved, authority::DispatchApprovers, reviewers},
    workflow_coverage,
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        CommitId, Digest, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        comment_marker::{CommentMarker, MarkerKind},
        policy_finding::PolicyFinding,
    },
    spans::Stages,
};
use konverge_config::Config;
use konverge_forge::{DefaultBranch, StatusState};
use konverge_report::{self as report, RunInfo, SUMMARY_BUDGET};
use konverge_run::{
    KeyUse, OpenRevision, Planner, RevisionSpec, StackClaims, StateBackend, Target,
    apply::{self, Decisions, EndedRun, StoppedPlan},
    redact,
};

/// The label of issues about unreviewed changes.
const UNREVIEWED_LABEL: &str = "konverge-unreviewed";

/// Applies a commit of the default branch. Approved digests that match known drift restore it first.
pub(super) async fn run(
    job: &Job,
    branch: &DefaultBranch,
    head: &CommitId,
    approved: Approved,
    agreeing: DispatchApprovers,
) -> Result<JobResult, UserError> {
    // The approvers are checked before anything is opened, because a digest that nobody may approve stops the whole
    // run.
    if !approved.is_empty() {
        match &agreeing {
            DispatchApprovers::Environment => reviewers::require_run_approval(job).await?,
            DispatchApprovers::Starter { login, .. } => {
                reviewers::require_push_permission(job, login).await?;
            }
        }
    }
    let restored = if approved.digests.is_empty() {
        None
    } else {
        restore::restore(job, branch, &approved.digests, &agreeing).await?
    };
    // A digest that restored drift must not be reported as unmatched by the apply below.
    let mut approved = approved;
    if let Some(restored) = &restored {
        approved
            .digests
            .retain(|digest| !restored.digests.contains(digest));
    }
    match restored.map(|restored| restored.result) {
        // Every digest matched drift, so this run leaves the pending changes to another one.
        Some(restored) if approved.is_empty() => Ok(restored),
        Some(restored) => {
            let applied = apply_approved(job, branch, head, approved, agreeing).await?;
            Ok(restored.and(applied))
        }
        None => apply_approved(job, branch, head, approved, agreeing).await,
    }
}

async fn apply_approved(
    job: &Job,
    branch: &DefaultBranch,
    head: &CommitId,
    approved: Approved,
    agreeing: DispatchApprovers,
) -> Result<JobResult, UserError> {
    let tip = ApplyTarget {
        head,
        branch,
        approved,
        agreeing,
    };
    apply_and_report(job, tip).await
}

async fn apply_and_report(job: &Job, tip: ApplyTarget<'_>) -> Result<JobResult, UserError> {
    let head = tip.head;
    let given = tip.approved.digests.clone();
    let typed = matches!(tip.agreeing, DispatchApprovers::Starter { .. });
    let publisher = Publisher::new(job);
    publisher
        .status(
            head,
            &job.apply_status(),
            StatusState::Pending,
            "applying what was reviewed",
        )
        .await;
    // A repository without a store does not use Konverge yet, so its merges succeed with a note. But a run with digests
    // is a request to apply, so it fails and names the missing setting.
    let config = configured(job, &tip.branch.tip).await;
    if let Ok(config) = &config
        && config.state.url.is_none()
        && tip.approved.is_empty()
    {
        return Ok(without_store(head, &publisher).await);
    }
    let (notices, result) = match config {
        Ok(config) => (
            Some(Notifications::new(job, &config)),
            apply_pending(job, tip, config, &publisher).await,
        ),
        Err(failure) => (None, Err(failure)),
    };
    let result = result.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    let (state, description) = match &result {
        Ok(applied) => applied.status(),
        Err(failure) => {
            publisher.publish_failure(failure);
            (StatusState::Error, failure.message.clone())
        }
    };
    publisher
        .status(head, &job.apply_status(), state, &description)
        .await;
    // Notifications are sent last, because a receiver that does not respond must not delay the status.
    match (&notices, &result) {
        (Some(notices), Ok(applied)) => {
            let decisions = ApplyDecisions {
                unreviewed: &applied.stopped_stacks(),
                denied: &applied.decisions.denied,
                rotated: &applied.decisions.rotated,
                failed_workflows: &applied.decisions.failed_workflows,
                rollouts: &applied.rollout_events,
                kept_back: &applied.kept_back,
            };
            notices.applied(&applied.report, decisions).await;
        }
        (Some(notices), Err(failure)) => notices.not_applied(failure).await,
        (None, _) => {}
    }
    let AppliedCommit {
        report,
        decisions,
        left_alone,
        ..
    } = result?;
    let matched = &decisions.matched;
    publisher.note_unmatched(&given.difference(matched).copied().collect());
    // The user who entered digests must notice that none of them matched, so the run fails.
    let in_vain = typed && !given.is_empty() && matched.is_empty() && report.stacks.is_empty();
    Ok(JobResult {
        code: match apply::exit_code(&report, &job.run) {
            0 if in_vain => ErrorKind::Policy.exit_code(),
            code => code,
        },
        text: report::outcome::text(&report, report::terminal::Style::default())
            + &adoption::left_alone_text(left_alone.len()),
    })
}

/// Loads the configuration of the default branch's tip, which may be newer than the applied commit.
async fn configured(job: &Job, tip: &CommitId) -> Result<Config, UserError> {
    job.repository.ensure(tip, job.credentials.as_ref()).await?;
    Ok(Config::load(job.repository.revision(tip)?.as_ref())?)
}

/// A finished apply of one commit.
struct AppliedCommit {
    report: ApplyReport,
    decisions: Decisions,
    /// The stacks that were skipped because a newer commit was applied to them.
    newer: BTreeMap<StackId, CommitId>,
    /// The stacks that are left alone while `konverge.adopt.yaml` exists.
    left_alone: BTreeSet<StackId>,
    /// True if stacks wait for another environment, or a rollout waits.
    waits_for_others: bool,
    /// The events of rollouts that stopped.
    rollout_events: Vec<RolloutEvent>,
    /// The stacks that wait for their rollout as in an earlier run. Receivers are not notified of them again.
    kept_back: BTreeSet<StackId>,
}

impl AppliedCommit {
    /// Returns the status of the commit, with its description.
    fn status(&self) -> (StatusState, String) {
        let state = match &self.report {
            report if apply::ended_well(report) && !self.waits_for_others => StatusState::Success,
            report if apply::only_waits(report) => StatusState::Pending,
            report if self.waits_for_others && apply::is_unbroken(report) => StatusState::Pending,
            _ => StatusState::Failure,
        };
        (state, self.description())
    }

    fn description(&self) -> String {
        let left = match self.left_alone.len() {
            0 => None,
            count => Some(format!("{} not taken over yet", report::plural(count, "stack"))),
        };
        let applied = match (self.report.stacks.is_empty(), self.newer.is_empty()) {
            (true, false) => Some("a newer commit is applied already".to_owned()),
            (true, true) if left.is_none() => Some("everything is applied already".to_owned()),
            (true, true) => None,
            (false, _) => Some(counts(&self.report)),
        };
        applied.into_iter().chain(left).collect::<Vec<_>>().join(", ")
    }

    /// Returns the stacks that were stopped because a change was not reviewed.
    fn stopped_stacks(&self) -> Vec<StackId> {
        let stopped = self.decisions.stopped.iter().map(|stopped| &stopped.plan.id);
        stopped
            .filter(|id| !self.left_alone.contains(*id))
            .cloned()
            .collect()
    }
}

async fn apply_pending(
    job: &Job,
    tip: ApplyTarget<'_>,
    config: Config,
    publisher: &Publisher<'_>,
) -> Result<AppliedCommit, UserError> {
    let head = tip.head;
    // Find: the pending stacks, and the reviews that count for them.
    let scope = EnvironmentScope::new(job.authority.environment.as_deref(), &config)?;
    let mut stages = Stages::start("find pending stacks");
    let (backend, revision) = open_head(job, head, &config).await?;
    // The records are loaded before the pending stacks are listed. So a newer record shows later that another run may
    // have applied some of these stacks.
    let records = RolloutRecords::load(&backend, &config).await;
    warn_of_overdue_drift(job, &backend, &config).await;
    for line in records.overdue(&config) {
        job.run.notes.warning(&line);
    }
    let known = backend.states.known().await?;
    backend.states.maintain_index(known).await?;
    revision.note_layout(&job.run);
    workflow_coverage::warn(job, &config, &revision);
    let mut pending = StacksToApply::find(job, &tip, &revision, &backend).await?;

    // Without a pending stack no review is needed, so the forge is not asked for pull requests.
    let reviews = if pending.targets.is_empty() {
        MergedReviews::default()
    } else {
        MergedReviews::load(job, &backend, head, &tip.branch.name).await?
    };
    let files = job.repository.revision(&tip.branch.tip)?;
    let mut left_alone = adoption::left_alone(
        files.as_ref(),
        &revision,
        &backend,
        known,
        &reviews,
        &pending.targets,
    )
    .await?;
    // A digest may belong to a stack that is not taken over yet. Only its plan can show that, so all stacks are
    // planned.
    if tip.approved.digests.is_empty() {
        pending.targets.retain(|target| !left_alone.contains(&target.id));
    }
    // Split: rollouts decide about their own stacks later, and stacks of other environments belong to other jobs. The
    // whole list is kept for deployments and review records.
    let all_pending = pending.targets.clone();
    let records = records.with_earlier(&backend, &config, &pending.targets).await;
    let targets = std::mem::take(&mut pending.targets);
    let split = GuardedTargets::split(&config, &revision, targets, &records)?;
    let guarded: Vec<_> = split.guarded().cloned().collect();
    let ScopedTargets {
        targets,
        held_back,
        elsewhere,
    } = scope.select(split.free, &guarded)?;
    pending.targets = targets;
    // Apply: one write to the index announces all stacks, instead of one write per stack.
    let ids: Vec<_> = pending.targets.iter().map(|target| target.id.clone()).collect();
    backend.states.announce_run(known, &ids).await?;
    let gate = review_gate(job, &tip, &config, &backend.secrets, &reviews)?;
    let deployments = Deployments::new(job, &config, &all_pending, head)?;
    let options = apply_options(job, &tip, &pending.newer, gate, deployments.as_ref());
    let mut planning = job
        .protected_planning(config.clone(), &tip.branch.tip, revision, backend.clone())
        .await?;
    planning.claims = StackClaims::without(tip.approved.without.clone());
    stages.next("plan and apply");
    let EndedRun {
        mut report,
        mut decisions,
    } = apply::run(&planning, &pending.targets, &options).await?;
    // Rollouts come after the stacks outside of rollouts, because `after` may let a stack of a wave wait for one of
    // these.
    let carried = CarriedCommit {
        commit: head,
        planning: &planning,
        pending: &all_pending,
        options: &options,
        reviews: &reviews,
    };
    let succeeded = report
        .stacks
        .iter()
        .filter(|stack| apply::has_succeeded(stack.result));
    let succeeded = succeeded.map(|stack| stack.id.clone()).collect();
    let guarded = PendingRollouts {
        records,
        guarded: &split.by_rollout,
    };
    let rollouts = rollout::run(job, &tip, carried, &scope, guarded, succeeded).await;
    // Report: one list with all outcomes, also those of stacks that were refused or held back before the apply.
    decisions.extend(rollouts.decisions);
    report.stacks.extend(rollouts.outcomes);
    let is_stopped = |outcome: &&StackOutcome| outcome.result == StackResult::Stopped;
    let left = split
        .refused
        .iter()
        .filter(is_stopped)
        .map(|outcome| outcome.id.clone());
    let kept_back = rollouts.kept_back.into_iter().chain(left).collect();
    report.stacks.extend(split.refused);
    let newer = pending.complete(&mut report);
    let waits_for_others = !held_back.is_empty() || !rollouts.waits.is_empty();
    report.stacks.extend(held_back);
    report
        .stacks
        .sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    // Everything below is published, so secrets are masked here.
    redact::report(&mut report, planning.secrets());
    // All stacks were planned because a digest may belong to any of them. A stack that no digest matched is left alone.
    let is_meant = |digest: &Digest| tip.approved.digests.contains(digest);
    report.stacks.retain(|stack| {
        stack.result != StackResult::Stopped || !left_alone.contains(&stack.id) || is_meant(&stack.digest)
    });
    left_alone.retain(|id| !report.stacks.iter().any(|stack| stack.id == *id));
    // Somebody rolled these stacks back on purpose. The author of another merge can do nothing about them, so they are
    // not reported.
    if let Some(revision) = planning.wanted.head() {
        let is_stopped = |target: &&Target| {
            let mut stopped = decisions.stopped.iter();
            stopped.any(|stopped| stopped.plan.id == target.id)
        };
        let stopped: Vec<_> = all_pending.iter().filter(is_stopped).collect();
        let left = rolled_back::find(job, &config, revision, &backend, &reviews, &stopped).await?;
        report.stacks.retain(|stack| !left.contains(&stack.id));
        decisions
            .stopped
            .retain(|stopped| !left.contains(&stopped.plan.id));
    }
    // Clean up. The removals that were skipped are not in this list, so their reviews would look used. Then no review is
    // deleted.
    if pending.skipped.is_none() {
        // A stack whose rollout carries an older commit still needs the reviews of the head.
        let of_head = |stack: &&StackOutcome| !rollouts.of_older_commits.contains(&stack.id);
        let of_head = ApplyReport {
            version: report.version,
            stacks: report.stacks.iter().filter(of_head).cloned().collect(),
        };
        reviews.forget_used(job, &backend, &all_pending, &of_head).await;
    }
    save_index(job, &backend).await;

    // Publish the result.
    let counted = planning.counts();
    let info = RunInfo {
        head: Some(head.clone()),
        compiled: counted.compiled,
        cached: counted.cached,
        ..job.info()
    };
    let (mut stopped, findings) = masked_result(&decisions, &planning);
    stopped.retain(|stopped| !left_alone.contains(&stopped.plan.id));
    let feedback = ApplyFeedback {
        head,
        report: &report,
        stopped: &stopped,
        info: &info,
        newer: &newer,
        left_alone: left_alone.len(),
        elsewhere: &elsewhere,
        arrived: if report.stacks.is_empty() {
            Vec::new()
        } else {
            commits_since_apply::since_last_apply(job, head, known).await
        },
        pulls: reviews.pull_requests_of(&report),
        findings: &findings,
    };
    feedback.publish_result(job, publisher).await;
    if let Some(deployments) = deployments {
        // The rollout has already ended the deployment of an older commit.
        let of_head = |stack: &&StackOutcome| !rollouts.deployed_before.contains(&stack.id);
        let of_head = ApplyReport {
            version: report.version,
            stacks: report.stacks.iter().filter(of_head).cloned().collect(),
        };
        deployments.end(&of_head, Some(&rollouts.carried)).await;
    }
    Ok(AppliedCommit {
        report,
        decisions,
        newer,
        left_alone,
        waits_for_others,
        rollout_events: rollouts.events,
        kept_back,
    })
}

/// Ends the run of a merge into a repository that has no store yet. Nothing is applied, as the preview announced.
async fn without_store(head: &CommitId, publisher: &Publisher<'_>) -> JobResult {
    let text = "nothing is applied: konverge.yaml configures no store (`state.url`)";
    publisher
        .status(head, &publisher.job.apply_status(), StatusState::Success, text)
        .await;
    JobResult {
        code: 0,
        text: format!("{text}\n"),
    }
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
    let revision = OpenRevision::open_with_permissions_of(
        &job.run,
        &job.repository,
        &RevisionSpec::Commit(head.clone()),
        config,
    )?;
    revision.layout.require_module()?;
    Ok((backend, revision))
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

/// Saves the index. A failure is only a warning: the index makes runs faster, and the next run reads missing entries
/// from the states.
async fn save_index(job: &Job, backend: &StateBackend) {
    if let Err(error) = backend.states.save_index().await {
        job.run
            .notes
            .warning(&format!("could not update the state index: {}", chain(&error)));
    }
}

/// Returns the stopped plans and the findings of the policies, with masked secrets.
fn masked_result(decisions: &Decisions, planning: &Planner) -> (Vec<StoppedPlan>, Vec<PolicyFinding>) {
    let mut stopped = decisions.stopped.clone();
    for stopped in &mut stopped {
        redact::stack(&mut stopped.plan, planning.secrets());
    }
    let mut findings: Vec<_> = decisions.findings.iter().cloned().collect();
    redact::findings(&mut findings, planning.secrets());
    (stopped, findings)
}

/// The result of an apply in the form that is published.
struct ApplyFeedback<'a> {
    head: &'a CommitId,
    report: &'a ApplyReport,
    /// The plans that were stopped because a change was not reviewed.
    stopped: &'a [StoppedPlan],
    info: &'a RunInfo,
    /// The stacks that were skipped because a newer commit was applied to them.
    newer: &'a BTreeMap<StackId, CommitId>,
    /// The number of stacks that are left alone while `konverge.adopt.yaml` exists.
    left_alone: usize,
    /// The pending stacks of other environments.
    elsewhere: &'a [Target],
    /// The commits of the branch since the last apply, the head first.
    arrived: Vec<CommitId>,
    /// The pull requests whose changes were applied, besides those of `arrived`.
    pulls: BTreeSet<u64>,
    /// The findings of the policies when the plans were approved or stopped.
    findings: &'a [PolicyFinding],
}

impl ApplyFeedback<'_> {
    /// Reports to each applied pull request, and keeps one issue for each unreviewed stack.
    async fn publish_result(&self, job: &Job, publisher: &Publisher<'_>) {
        let Self {
            head,
            report,
            stopped,
            info,
            ..
        } = *self;
        let mut summary = report::markdown::outcome(report, info, None, SUMMARY_BUDGET);
        summary.push_str(&report::markdown::newer(self.newer));
        summary.push_str(&adoption::left_alone_text(self.left_alone));
        publisher.summary(&summary);
        publisher.apply_outputs(report, self.findings);
        let unreviewed: Vec<_> = stopped
            .iter()
            .map(|stopped| stopped.plan.digest.to_string())
            .collect();
        if !report.stacks.is_empty() {
            publisher.outputs(&[("unreviewed", unreviewed.join(","))]);
            publisher
                .merged_outcome(head, &self.arrived, &self.pulls, report, info)
                .await;
        }
        // A stack that was not pending has no differences, so its issue may be closed. But a stack of another
        // environment was not planned, and a stack with a newer commit belongs to a newer run.
        let settled = |stack: &str| {
            let not_well = |outcome: &StackOutcome| outcome.id.as_str() == stack && !was_approved(outcome);
            let is_elsewhere = self.elsewhere.iter().any(|target| target.id.as_str() == stack);
            !report.stacks.iter().any(not_well)
                && !self.newer.keys().any(|id| id.as_str() == stack)
                && !is_elsewhere
        };
        publisher
            .issues(
                UNREVIEWED_LABEL,
                MarkerKind::Unreviewed,
                settled,
                stopped
                    .iter()
                    .map(|stopped| unreviewed_issue(job, info, stopped))
                    .collect(),
            )
            .await;
    }
}

/// Returns the marker, title and body of the issue for a stopped stack.
fn unreviewed_issue(
    job: &Job,
    info: &RunInfo,
    StoppedPlan { plan, units }: &StoppedPlan,
) -> (CommentMarker, String, String) {
    let marker = CommentMarker {
        head: info.head.as_ref().map(CommitId::to_string).unwrap_or_default(),
        run: job.runner.info().run_id,
        attempt: job.runner.info().run_attempt,
        digest: plan.digest.to_string(),
        ..CommentMarker::new(MarkerKind::Unreviewed, plan.id.as_str())
    };
    let title = format!("{}: blocked: unreviewed change", plan.id);
    let body = report::markdown::unreviewed(plan, units, info, &marker, report::COMMENT_BUDGET);
    (marker, title, body)
}

/// Returns true if nothing of the stack still needs an approval. A stack that waits for its rollout was not planned, so
/// it has no serial and does not count.
fn was_approved(stack: &StackOutcome) -> bool {
    apply::has_succeeded(stack.result) || (stack.result == StackResult::Waiting && stack.serial.is_some())
}
