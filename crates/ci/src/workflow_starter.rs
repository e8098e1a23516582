//! Starts the workflows around an apply, and waits for them.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::time::Instant;

use crate::job::Job;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{CommitId, Digest},
};
use konverge_github::{Client, DefaultBranch, DispatchedRun};
use konverge_run::{
    RunContext,
    apply::{WorkflowCall, WorkflowStarter},
};

/// How long to wait before a run is asked for again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The number of runs in which one is looked for.
const RUNS: usize = 100;

/// Starts workflows of the default branch with the token of the job.
pub(super) struct DefaultBranchWorkflows {
    client: Client,
    run: RunContext,
    branch: String,
}

impl DefaultBranchWorkflows {
    /// `None` if the job has no token.
    pub(super) fn new(job: &Job, branch: &DefaultBranch) -> Option<Self> {
        Some(Self {
            client: job.client.clone()?,
            run: job.run.clone(),
            branch: branch.name.clone(),
        })
    }
}

#[async_trait]
impl WorkflowStarter for DefaultBranchWorkflows {
    async fn newest_run(&self, workflow: &str) -> Result<u64, UserError> {
        let runs = self.client.dispatched_runs(workflow, &self.branch, 1).await?;
        Ok(runs.first().map_or(0, |run| run.id))
    }

    async fn start(&self, workflow: &str, call: WorkflowCall<'_>) -> Result<u64, UserError> {
        let inputs = json!({
            "stack": call.stack,
            "commit": call.commit.map_or("", CommitId::as_str),
            "digest": call.digest,
        });
        let started = self
            .client
            .dispatch_workflow(workflow, &self.branch, &inputs)
            .await;
        let started = started.map_err(|error| {
            UserError::from(error).hint(format!(
                "`{workflow}` on `{}` needs `workflow_dispatch` with the inputs `stack`, `commit` and `digest`; a GitHub Enterprise Server needs version 3.21",
                self.branch
            ))
        })?;
        self.run.notes.note(&format!(
            "note: {}: started the workflow `{workflow}`, run {started}",
            call.stack
        ));
        Ok(started)
    }

    async fn find(
        &self,
        workflow: &str,
        call: WorkflowCall<'_>,
        after: u64,
    ) -> Result<Option<u64>, UserError> {
        let mut runs = self.client.dispatched_runs(workflow, &self.branch, RUNS).await?;
        let is_all = runs.len() < RUNS || runs.iter().any(|run| run.id <= after);
        runs.retain(|run| run.id > after);
        if let Some(run) = runs.iter().find(|run| is_of_call(run, call)) {
            return Ok(Some(run.id));
        }
        if is_all && runs.iter().all(is_named) {
            return Ok(None);
        }
        let what = "an earlier run was stopped while it started it, and whether it ran is not known: its runs do not name a digest";
        Err(UserError::new(ErrorKind::Github, what).hint(format!(
            "add `run-name: ${{{{ inputs.stack }}}} ${{{{ inputs.digest }}}}` to `{workflow}` on `{}`, and start it by hand with the stack `{}` and the digest `{}`",
            self.branch, call.stack, call.digest
        )))
    }

    async fn wait(
        &self,
        workflow: &str,
        run: u64,
        timeout: Duration,
    ) -> Result<Option<UserError>, UserError> {
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(found) = self.client.dispatched_run(run).await? else {
                let failure = UserError::new(ErrorKind::Github, format!("its run {run} was deleted"));
                return Ok(Some(failure.hint("the next apply starts it again")));
            };
            let url = found.html_url.escape_debug();
            match found.conclusion.as_deref() {
                Some("success") => return Ok(None),
                Some(conclusion) => {
                    let what = format!("it ended with `{}`: {url}", conclusion.escape_debug());
                    let failure = UserError::new(ErrorKind::Github, what);
                    return Ok(Some(
                        failure.hint("fix what it reports; the next apply starts it again"),
                    ));
                }
                None if Instant::now() >= deadline => {
                    let what = format!("it has not ended after {} s: {url}", timeout.as_secs());
                    let failure = UserError::new(ErrorKind::Github, what);
                    return Err(failure.hint(format!(
                        "the next apply waits for the same run; `timeout` of `{workflow}` in `apply.hooks.workflows` says how long"
                    )));
                }
                None => {}
            }
            let pause_now = pause.min(deadline.saturating_duration_since(Instant::now()));
            pause = (pause * 2).min(LONGEST_PAUSE);
            tokio::select! {
                () = self.run.cancel.cancelled() => self.run.check_interrupted()?,
                () = tokio::time::sleep(pause_now) => {}
            }
        }
    }
}

/// Returns true if the title of a run names a call.
fn is_of_call(run: &DispatchedRun, call: WorkflowCall<'_>) -> bool {
    let has = |word: &str| run.display_title.split_whitespace().any(|part| part == word);
    has(call.stack.as_str()) && has(&call.digest.to_string())
}

/// Returns true if the title of a run names some call.
fn is_named(run: &DispatchedRun) -> bool {
    let mut words = run.display_title.split_whitespace();
    words.any(|word| word.parse::<Digest>().is_ok())
}
