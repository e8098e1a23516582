//! Links the uploaded page in the preview's comment and in the job summary, in a step after the upload: the
//! artifact's address is not known before.

use std::collections::HashMap;

use crate::{ShardMode, trust::outside_pull_request::find_pull_request};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::comment_marker::{CommentMarker, MarkerKind},
    secrets::without_credentials,
};
use konverge_github::{Client, GithubEvent, Runner};
use konverge_report::escape;
use konverge_run::RunContext;

/// Links the page at this address in the job summary, and in the comment that this run has written for `part`, if
/// its event is of a pull request.
///
/// # Errors
/// The address is not one of an artifact of this run, or GitHub refuses the change.
pub async fn link_page(run: &RunContext, address: &str, part: ShardMode) -> Result<(), UserError> {
    let env: HashMap<String, String> = run.env.clone().into_iter().collect();
    let runner = Runner::from_env(&env)?;
    if !is_artifact(&runner, address) {
        let shown = without_credentials(address);
        let what = format!("`{}` is not an artifact of this run", shown.escape_debug());
        return Err(UserError::new(ErrorKind::Usage, what).hint(
            "let KONVERGE_PAGE_URL be the output `artifact-url` of `actions/upload-artifact` of the same job",
        ));
    }
    runner.add_summary(&format!("{}\n", escape::link("The preview as a page", address)))?;
    let event = runner.event()?;
    let is_of_pull_request = matches!(event, GithubEvent::PullRequest(_) | GithubEvent::WorkflowRun(_));
    let (true, Some(token)) = (is_of_pull_request, run.github_token()) else {
        run.notes
            .note("note: the summary links the page; no comment does: this is not a pull request's job, or it has no token");
        return Ok(());
    };
    let client = Client::new(&runner.api_url, &runner.repository, token, run.secrets.clone())?;
    let client = client.with_stop(run.cancel.clone());
    let subject = match event {
        GithubEvent::PullRequest(event) => Some((event.number, event.head)),
        GithubEvent::WorkflowRun(event) => {
            let pull = find_pull_request(&client, &event, &event.default_branch).await?;
            pull.map(|pull| (pull.number, event.head))
        }
        _ => None,
    };
    let Some((number, head)) = subject else {
        run.notes
            .note("note: the summary links the page; the pull request is closed or has a newer head");
        return Ok(());
    };
    let scope = part.share().map(|share| share.to_string());
    let marker = CommentMarker {
        head: head.to_string(),
        run: runner.run_id,
        attempt: runner.run_attempt,
        ..CommentMarker::new(MarkerKind::Preview, scope.unwrap_or_default())
    };
    let list = runner.artifacts_url();
    if !client.edit_comment(number, &marker, &list, address).await? {
        run.notes
            .note("note: this run has written no comment that links its artifacts; nothing is changed");
    }
    Ok(())
}

fn is_artifact(runner: &Runner, address: &str) -> bool {
    let prefix = format!("{}/artifacts/", runner.run_url());
    let number = address.strip_prefix(&prefix).unwrap_or_default();
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}
