//! The events whose jobs may run live tests: those that run code of the repository itself. A pull request from outside
//! runs offline tests only.

use konverge_base::error::{ErrorKind, UserError};
use konverge_forge::JobEvent;
use konverge_run::{RunContext, forge};

/// Checks the event of this job. Outside of GitHub's runner every run is allowed.
///
/// # Errors
/// The event is of a pull request from outside, cannot be read, or has more rights than the code that it runs.
pub(super) fn check(run: &RunContext) -> Result<(), UserError> {
    let Some(job) = forge::current_job(&run.env)? else {
        return Ok(());
    };
    let refuse = |why: &str| {
        let what = format!("live tests are not run: {why}");
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("run `konverge test` without `--live` here; a person can run the live tests by hand"))
    };
    if job.info().event_name == "pull_request_target" {
        return refuse(
            "`pull_request_target` has the rights of the default branch and the code of the pull request",
        );
    }
    match job.event()? {
        JobEvent::PullRequest(event) if event.from_fork => refuse("the pull request comes from outside"),
        JobEvent::WorkflowRun(_) => {
            refuse("`workflow_run` has the rights of the default branch, no matter who wrote the code")
        }
        JobEvent::PullRequest(_)
        | JobEvent::Push(_)
        | JobEvent::MergeGroup { .. }
        | JobEvent::Schedule { .. }
        | JobEvent::WorkflowDispatch { .. }
        | JobEvent::RepositoryDispatch { .. } => Ok(()),
    }
}
