//! Finds out whether a later run has set the status of the same commit, so that an older run does not overwrite it.

use super::job::Job;
use konverge_base::model::CommitId;
use konverge_forge::{CiJob, CommitStatus, Forge, ForgeError};

/// Returns true if a later run, or a later attempt of this run, has set the status of the same commit. This happens
/// when the base of a pull request changes.
///
/// # Errors
/// The forge cannot list the statuses.
pub(super) async fn has_newer_status(
    job: &Job,
    client: Option<&dyn Forge>,
    head: &CommitId,
    context: &str,
) -> Result<bool, ForgeError> {
    let newest = newest_status(client, head, context).await?;
    let overtaken = newest.is_some_and(|newest| is_of_later_run(&newest, job.runner.as_ref()));
    if overtaken {
        job.run.notes.note(OVERTAKEN);
    }
    Ok(overtaken)
}

pub(super) const OVERTAKEN: &str =
    "a newer run has set the status of this commit, so this run leaves it unchanged";

pub(super) fn is_of_later_run(status: &CommitStatus, runner: &dyn CiJob) -> bool {
    let page = status.target_url.as_deref();
    page.is_some_and(|page| runner.is_later_page(page))
}

pub(super) fn is_of_run(status: &CommitStatus, runner: &dyn CiJob) -> bool {
    let page = status.target_url.as_deref();
    page.is_some_and(|page| runner.is_page_of_run(page))
}

/// Returns the newest status with a context, if it is among the newest statuses of the commit.
pub(super) async fn newest_status(
    client: Option<&dyn Forge>,
    head: &CommitId,
    context: &str,
) -> Result<Option<CommitStatus>, ForgeError> {
    let Some(client) = client else {
        return Ok(None);
    };
    let newest = client.newest_statuses(head).await?;
    Ok(newest.into_iter().find(|status| status.context == context))
}
