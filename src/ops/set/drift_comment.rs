//! The comment on the issue of a drifted stack: why its difference was not kept.

use konverge_base::{
    error::UserError,
    model::{
        CommitId,
        comment_marker::{CommentMarker, MarkerKind},
        plan::StackPlan,
    },
};
use konverge_config::Config;
use konverge_forge::{Forge, KeptIssues as _, StickyComments as _};
use konverge_repo::git::Repository;
use konverge_report::{
    RunInfo,
    markdown::{self, Failed},
};
use konverge_run::{RunContext, redact};

/// Writes on the drift issue of a stack why its difference was not kept. Each difference has one comment.
///
/// # Errors
/// The run is interrupted, the configuration of the commit is invalid, or the forge refuses it.
pub async fn tell_drift_issue(
    run: &RunContext,
    client: &dyn Forge,
    repository: &Repository,
    commit: &CommitId,
    drift: &StackPlan,
    refusal: &UserError,
) -> Result<(), UserError> {
    run.check_interrupted()?;
    let config = Config::load(repository.revision(commit)?.as_ref())?;
    let place = CommentMarker::new(MarkerKind::Drift, drift.id.as_str());
    let Some(issue) = client.job_issue(config.drift.label(), &place).await? else {
        run.notes
            .note(&format!("{} has no open drift issue to comment on", drift.id));
        return Ok(());
    };
    run.begin_writes()?;
    let marker = CommentMarker {
        run: run.job_run(),
        attempt: run.job_attempt(),
        ..CommentMarker::new(MarkerKind::Drift, drift.digest.to_string())
    };
    let info = RunInfo {
        run_url: run.job_url(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RunInfo::default()
    };
    let refusal = redact::failure(refusal, &run.secrets);
    let text = markdown::failure(Failed::Keep, &refusal, &info, Some(&marker));
    let text = run.secrets.mask_finished(&text);
    client
        .on_issues()
        .upsert_comment(issue.number, &marker, &text)
        .await?;
    Ok(())
}
