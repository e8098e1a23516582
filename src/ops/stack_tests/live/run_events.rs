//! Which jobs of GitHub may run live tests: those that run code of the repository itself. A pull request from outside
//! runs offline tests alone.

use std::collections::HashMap;

use konverge_base::error::{ErrorKind, UserError};
use konverge_github::{GithubEvent, Runner};
use konverge_run::RunContext;

/// Checks the event of this job; outside of GitHub's runner everything may.
///
/// # Errors
/// The event is of a pull request from outside, cannot be read, or runs with more rights than the code that it is about.
pub(super) fn check(run: &RunContext) -> Result<(), UserError> {
    let env: HashMap<String, String> = run.env.clone().into_iter().collect();
    if !Runner::is_here(&env) {
        return Ok(());
    }
    let runner = Runner::from_env(&env)?;
    let refuse = |why: &str| {
        let what = format!("live tests are not run: {why}");
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("run `konverge test` without `--live` here; a person can run the live tests by hand"))
    };
    if runner.event_name == "pull_request_target" {
        return refuse(
            "`pull_request_target` has the rights of the default branch and the code of the pull request",
        );
    }
    match runner.event()? {
        GithubEvent::PullRequest(event) if event.from_fork => refuse("the pull request comes from outside"),
        GithubEvent::WorkflowRun(_) => {
            refuse("`workflow_run` has the rights of the default branch, no matter who wrote the code")
        }
        GithubEvent::PullRequest(_)
        | GithubEvent::Push(_)
        | GithubEvent::MergeGroup { .. }
        | GithubEvent::Schedule { .. }
        | GithubEvent::WorkflowDispatch { .. }
        | GithubEvent::RepositoryDispatch { .. } => Ok(()),
    }
}
