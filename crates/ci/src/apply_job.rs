//! The apply after a merge: applies pending changes that were reviewed. `apply_stages.rs` has its stages, and
//! `apply_feedback.rs` publishes the result.

use crate::{
    adoption,
    apply_stages::{self, AppliedCommit},
    job::{Job, JobResult},
    publisher::Publisher,
    restore,
    trust::{
        authority::{ApplyTarget, DispatchApprovers},
        reviewers,
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::CommitId,
    spans::Stages,
};
use konverge_config::Config;
use konverge_forge::StatusState;
use konverge_report as report;
use konverge_run::apply;
use konverge_secrets::redact;

/// Applies a commit of the default branch. Approved digests that match known drift restore it first.
pub(super) async fn run(job: &Job, target: &ApplyTarget) -> Result<JobResult, UserError> {
    let ApplyTarget {
        upstream,
        approved,
        agreeing,
        ..
    } = target;
    // The approvers are checked before anything is opened, because a digest that nobody may approve stops the whole
    // run.
    if !approved.is_empty() {
        let client = upstream.client.as_ref();
        match agreeing {
            DispatchApprovers::Environment => reviewers::require_run_approval(job, client).await?,
            DispatchApprovers::Starter { login, .. } => {
                reviewers::require_push_permission(client, login).await?;
            }
        }
    }
    let restored = if approved.digests.is_empty() {
        None
    } else {
        restore::restore(job, upstream, &approved.digests, agreeing).await?
    };
    let Some(restored) = restored else {
        return apply_and_report(job, target).await;
    };
    // A digest that restored drift must not be reported as unmatched by the apply below.
    let mut target = target.clone();
    target
        .approved
        .digests
        .retain(|digest| !restored.digests.contains(digest));
    // If every digest matched drift, this run leaves the pending changes to another one.
    if target.approved.is_empty() {
        return Ok(restored.result);
    }
    Ok(restored.result.and(apply_and_report(job, &target).await?))
}

async fn apply_and_report(job: &Job, target: &ApplyTarget) -> Result<JobResult, UserError> {
    let ApplyTarget {
        head,
        approved,
        agreeing,
        ..
    } = target;
    let publisher = Publisher::new(job);
    // The status is pending before anything is read, because an earlier status of the same commit must not stay valid
    // meanwhile.
    publisher
        .status(
            head,
            &job.apply_status(),
            StatusState::Pending,
            "applying what was reviewed",
        )
        .await;
    let (config, result) = match configured(job, &target.upstream.branch.tip).await {
        // A repository without a store does not use Konverge yet, so its merges succeed with a note. But a run with
        // digests is a request to apply, so it fails and names the missing setting.
        Ok(config) if config.state.url.is_none() && approved.is_empty() => {
            return Ok(without_store(head, &publisher).await);
        }
        Ok(config) => {
            let mut stages = Stages::start("find pending stacks");
            let result = apply_stages::run(job, target, &config, &mut stages).await;
            if let Ok(applied) = &result {
                publisher.applied(head, applied).await;
            }
            (Some(config), result)
        }
        Err(failure) => (None, Err(failure)),
    };
    let result = result.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    publisher.apply_ended(head, config.as_ref(), &result).await;
    let AppliedCommit {
        report,
        decisions,
        left_alone,
        ..
    } = result?;
    let (given, matched) = (&approved.digests, &decisions.matched);
    publisher.note_unmatched(&given.difference(matched).copied().collect());
    // The user who entered digests must notice that none of them matched, so the run fails.
    let typed = matches!(agreeing, DispatchApprovers::Starter { .. });
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
