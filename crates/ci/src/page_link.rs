//! Adds a link to the uploaded page to the preview's comment and to the job summary. This is a separate step after the
//! upload, because the URL of the artifact is not known before.

use crate::{ShardMode, job::marker, preview_events::find_pull_request};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::comment_marker::{CommentMarker, MarkerKind},
};
use konverge_forge::{CiJob, JobEvent, StickyComments as _};
use konverge_report::escape;
use konverge_run::{RunContext, forge};
use konverge_secrets::without_credentials;

/// Adds a link to the page at `address` to the job summary and, for the event of a pull request, to the comment that
/// this run has written for `part`.
///
/// # Errors
/// The address is no artifact of this run, or the forge refuses the change.
pub async fn link_page(run: &RunContext, address: &str, part: ShardMode) -> Result<(), UserError> {
    let runner = forge::open_job(&run.env)?;
    if !is_artifact(runner.as_ref(), address) {
        let shown = without_credentials(address);
        let what = format!("`{}` is not an artifact of this run", shown.escape_debug());
        return Err(UserError::new(ErrorKind::Usage, what).hint(
            "set KONVERGE_PAGE_URL to the output `artifact-url` of `actions/upload-artifact` in the same job",
        ));
    }
    runner.add_summary(&format!("{}\n", escape::link("The preview as a page", address)))?;
    let event = runner.event()?;
    let is_of_pull_request = matches!(event, JobEvent::PullRequest(_) | JobEvent::WorkflowRun(_));
    let client = if is_of_pull_request {
        forge::connect(run, &runner.info().repository)?
    } else {
        None
    };
    let Some(client) = client else {
        run.notes
            .note("the job summary links the page, but no comment does: this job is not for a pull request, or has no token");
        return Ok(());
    };
    let previewed = match event {
        JobEvent::PullRequest(event) => Some((event.number, event.head)),
        JobEvent::WorkflowRun(event) => {
            let pull = find_pull_request(client.as_ref(), &event, &event.default_branch).await?;
            pull.map(|pull| (pull.number, event.head))
        }
        _ => None,
    };
    let Some((number, head)) = previewed else {
        run.notes
            .note("the summary links the page; the pull request is closed or has a newer head");
        return Ok(());
    };
    // The marker identifies the comment that this attempt of the run wrote, in contrast to the comment of a newer run.
    let scope = part.share().map(|share| share.to_string());
    let marker = CommentMarker {
        head: head.to_string(),
        ..marker(runner.as_ref(), MarkerKind::Preview, scope.unwrap_or_default())
    };
    let list = runner.artifacts_url();
    if !client.edit_comment(number, &marker, &list, address).await? {
        run.notes
            .note("this run has written no comment that links its artifacts; nothing is changed");
    }
    Ok(())
}

fn is_artifact(runner: &dyn CiJob, address: &str) -> bool {
    let prefix = format!("{}/artifacts/", runner.run_url());
    let number = address.strip_prefix(&prefix).unwrap_or_default();
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}
