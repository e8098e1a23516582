//! Starts the workflows around an apply, and waits for their end.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::json;
use tokio::time::Instant;

use crate::{job::Job, trust::authority::Upstream};
use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::CommitId,
};
use konverge_forge::{DispatchedRun, Forge};
use konverge_run::{
    RunContext,
    apply::{SEARCH, WorkflowCall, WorkflowStart, WorkflowStarter},
};

/// The first and the longest pause between two requests for the status of a run.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The number of newest runs in which a run is searched.
const RUNS: usize = 100;

/// Starts workflows of the default branch with the token of the job.
pub(super) struct DefaultBranchWorkflows {
    client: Arc<dyn Forge>,
    run: RunContext,
    branch: String,
}

impl DefaultBranchWorkflows {
    pub(super) fn new(job: &Job, Upstream { branch, client }: &Upstream) -> Self {
        Self {
            client: Arc::clone(client),
            run: job.run.clone(),
            branch: branch.name.clone(),
        }
    }
}

#[async_trait]
impl WorkflowStarter for DefaultBranchWorkflows {
    async fn newest_run(&self, workflow: &str) -> Result<u64, UserError> {
        let runs = self.client.dispatched_runs(workflow, &self.branch, 1).await?;
        Ok(runs.first().map_or(0, |run| run.id))
    }

    async fn start(&self, workflow: &str, call: WorkflowCall<'_>) -> WorkflowStart {
        let inputs = json!({
            "stack": call.stack,
            "commit": call.commit.map_or("", CommitId::as_str),
            "digest": call.digest,
        });
        let started = self
            .client
            .dispatch_workflow(workflow, &self.branch, &inputs)
            .await;
        match started {
            Ok(run) => {
                self.run.notes.note(&format!(
                    "{}: started the workflow `{workflow}`, run {run}",
                    call.stack
                ));
                WorkflowStart::Started(run)
            }
            // A request without a response may have started the workflow, so it must not be repeated.
            Err(error) if error.is_uncertain() => WorkflowStart::Unknown(error.into()),
            Err(error) => WorkflowStart::Refused(UserError::from(error).hint(format!(
                "`{workflow}` on `{}` needs `workflow_dispatch` with the inputs `stack`, `commit` and `digest`",
                self.branch
            ))),
        }
    }

    async fn find(
        &self,
        workflow: &str,
        call: WorkflowCall<'_>,
        after: u64,
        timeout: Duration,
    ) -> Result<Option<u64>, UserError> {
        let mut pauses = Pauses::until(timeout);
        loop {
            let runs = self.client.dispatched_runs(workflow, &self.branch, RUNS).await?;
            let is_it = |run: &&DispatchedRun| run.id > after && is_of_call(run, call);
            if let Some(run) = runs.iter().find(is_it) {
                return Ok(Some(run.id));
            }
            if pauses.are_over() {
                return Ok(None);
            }
            pauses.next(&self.run).await?;
        }
    }

    async fn wait(
        &self,
        workflow: &str,
        run: u64,
        timeout: Duration,
    ) -> Result<Option<UserError>, UserError> {
        let mut pauses = Pauses::until(timeout);
        // A forge may list a new run late, so a missing run counts as deleted only after this time.
        let appears_until = Instant::now() + SEARCH;
        let waits_on = format!(
            "the next apply waits for the same run; `timeout` of `{workflow}` in `apply.hooks.workflows` says how long"
        );
        loop {
            let Some(found) = self.client.dispatched_run(run).await? else {
                if Instant::now() >= appears_until {
                    let failure =
                        UserError::new(ErrorKind::Github, format!("the workflow run {run} was deleted"));
                    return Ok(Some(failure.hint("the next apply starts the workflow again")));
                }
                if pauses.are_over() {
                    let what = format!(
                        "the forge does not list the workflow run {run} after {} s",
                        timeout.as_secs()
                    );
                    let deleted = format!(
                        "a run that the forge does not list for {} s counts as deleted: set a longer `timeout` to wait for that",
                        SEARCH.as_secs()
                    );
                    return Err(UserError::new(ErrorKind::Github, what)
                        .hint(waits_on)
                        .hint(deleted));
                }
                pauses.next(&self.run).await?;
                continue;
            };
            let url = found.html_url.escape_debug();
            match found.conclusion.as_deref() {
                Some("success") => return Ok(None),
                Some(conclusion) => {
                    let what = format!("it ended with `{}`: {url}", conclusion.escape_debug());
                    let failure = UserError::new(ErrorKind::Github, what);
                    return Ok(Some(failure.hint(
                        "fix the problem that the workflow reports; the next apply starts the workflow again",
                    )));
                }
                None if pauses.are_over() => {
                    let what = format!("it has not ended after {} s: {url}", timeout.as_secs());
                    let failure = UserError::new(ErrorKind::Github, what);
                    return Err(failure.hint(waits_on));
                }
                None => {}
            }
            pauses.next(&self.run).await?;
        }
    }
}

/// The pauses between requests, each longer than the one before, until a deadline.
struct Pauses {
    deadline: Instant,
    pause: Duration,
}

impl Pauses {
    fn until(timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            pause: FIRST_PAUSE,
        }
    }

    fn are_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Waits before the next request.
    ///
    /// # Errors
    /// The run was interrupted.
    async fn next(&mut self, run: &RunContext) -> Result<(), UserError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Interrupt::new(run.cancel.clone()).pause(pause).await;
        run.check_interrupted()
    }
}

/// Returns true if the title of a run has the stack and the digest of a call.
fn is_of_call(run: &DispatchedRun, call: WorkflowCall<'_>) -> bool {
    let has = |word: &str| run.display_title.split_whitespace().any(|part| part == word);
    has(call.stack.as_str()) && has(&call.digest.to_string())
}
