//! Workflows around the apply of a stack: started once for each Spec, and waited for.
//!
//! Before a workflow starts, the state records that it is about to start; after the start, the state records the id of
//! its run. If an apply is stopped before it sees the end of a run, the next apply finds that run and waits for its
//! end. If it is unknown whether a start took effect and no run is found, no workflow is started: it must never run
//! twice for one digest.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, RepoPath, StackId,
        other_names::OtherNames,
        state::{JournalEntry, StackState},
        text::json_name,
    },
};
use konverge_config::{Config, HookWorkflow, WorkflowTime};
use konverge_engine::Journal;

/// The time limit of a workflow without `timeout` in the configuration.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The maximum search time for a run whose start has an unknown result. A forge may list a new run late.
pub const SEARCH: Duration = Duration::from_secs(60);

/// The prefix of the keys of the workflow records in the state.
const KEY: &str = "hook-workflow/";

/// The inputs of a workflow.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowCall<'a> {
    /// The stack that is applied.
    pub stack: &'a StackId,
    /// The folder of the stack.
    pub folder: &'a RepoPath,
    /// The other names of the stack: workflows that are configured for these names run, too.
    pub known_as: &'a OtherNames,
    /// The commit that is applied.
    pub commit: Option<&'a CommitId>,
    /// The digest of the Spec.
    pub digest: Digest,
}

/// The result of starting a workflow.
#[derive(Debug)]
pub enum WorkflowStart {
    /// The workflow was started; the value is the id of its run.
    Started(u64),
    /// The forge refused the start, so the workflow does not run.
    Refused(UserError),
    /// The workflow may run, because the forge did not answer.
    Unknown(UserError),
}

/// Starts workflows of the default branch, and waits for their end.
#[async_trait]
pub trait WorkflowStarter: Send + Sync {
    /// Returns the id of the newest run of a workflow, or 0.
    ///
    /// # Errors
    /// The forge cannot list the runs.
    async fn newest_run(&self, workflow: &str) -> Result<u64, UserError>;

    /// Starts a workflow.
    async fn start(&self, workflow: &str, call: WorkflowCall<'_>) -> WorkflowStart;

    /// Searches until `timeout` for the run of an earlier [`Self::start`]. Its id is greater than `after`. `None` does
    /// not prove that there is no such run.
    ///
    /// # Errors
    /// The forge does not answer, or the apply was interrupted.
    async fn find(
        &self,
        workflow: &str,
        call: WorkflowCall<'_>,
        after: u64,
        timeout: Duration,
    ) -> Result<Option<u64>, UserError>;

    /// Waits for the end of a run. Returns the failure of the run, or `None` if it succeeded.
    ///
    /// # Errors
    /// The end of the run cannot be determined.
    async fn wait(&self, workflow: &str, run: u64, timeout: Duration)
    -> Result<Option<UserError>, UserError>;
}

/// The workflows around the apply of one stack, under its lease.
pub(super) struct WorkflowHooks<'a> {
    pub config: &'a Config,
    pub starter: Option<&'a dyn WorkflowStarter>,
    pub journal: &'a dyn Journal,
    /// The data of the runtimes in the state before the apply.
    pub recorded: &'a BTreeMap<String, Value>,
    pub call: WorkflowCall<'a>,
}

/// The record of the last run of a workflow, in the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WorkflowRecord {
    digest: Digest,
    /// The id of the newest run before the workflow was started.
    after: u64,
    /// The id of the workflow's run; `None` if it is unknown whether the workflow started.
    run: Option<u64>,
    /// True if the run succeeded; `None` if no apply has seen its end.
    succeeded: Option<bool>,
}

impl WorkflowHooks<'_> {
    /// Runs the workflows that are due before or after the apply, one after the other.
    ///
    /// # Errors
    /// A workflow failed, or cannot run here.
    pub(super) async fn run(&self, when: WorkflowTime) -> Result<(), UserError> {
        let WorkflowCall {
            stack,
            folder,
            known_as,
            ..
        } = self.call;
        for hook in self.config.hook_workflows(when, stack, folder, known_as) {
            let (time, file) = (json_name(when), &hook.workflow);
            let what = format!("the workflow `{file}` (`{time}`)");
            self.run_one(hook)
                .await
                .map_err(|failure| failure.context(what))?;
        }
        Ok(())
    }

    async fn run_one(&self, hook: &HookWorkflow) -> Result<(), UserError> {
        let key = format!("{KEY}{}/{}", json_name(hook.when), hook.workflow);
        let last = last_run(self.recorded.get(&key))?;
        let same = last.as_ref().filter(|last| last.digest == self.call.digest);
        if same.is_some_and(|last| last.succeeded == Some(true)) {
            return Ok(());
        }
        let starter = self.starter.ok_or_else(cannot_start)?;
        let timeout = hook.timeout.or(self.config.apply.hooks.timeout);
        let timeout = timeout.map_or(TIMEOUT, konverge_config::Span::duration);
        // If an earlier apply of this digest did not see the end of its run, search that run, and never start another
        // one.
        let mut unanswered = None;
        let mut begun = match same.filter(|last| last.succeeded.is_none()) {
            Some(last) => last.clone(),
            None => {
                // The forge may list new runs late, so a recorded run counts too.
                let newest = starter.newest_run(&hook.workflow).await?;
                let known = last.and_then(|last| last.run).unwrap_or(0);
                let mut begun = WorkflowRecord {
                    digest: self.call.digest,
                    after: newest.max(known),
                    run: None,
                    succeeded: None,
                };
                unanswered = self.start(&key, hook, starter, &mut begun).await?;
                begun
            }
        };
        let run = match begun.run {
            Some(run) => run,
            None => {
                let search = timeout.min(SEARCH);
                let found = starter
                    .find(&hook.workflow, self.call, begun.after, search)
                    .await?;
                found.ok_or_else(|| self.unknown(hook, search, unanswered))?
            }
        };
        begun.run = Some(run);
        self.record(&key, &begun).await?;
        let failure = starter.wait(&hook.workflow, run, timeout).await?;
        begun.succeeded = Some(failure.is_none());
        self.record(&key, &begun).await?;
        failure.map_or(Ok(()), Err)
    }

    /// Records that a workflow is about to start, and starts it. Returns the error of the start if it is unknown
    /// whether the workflow runs.
    async fn start(
        &self,
        key: &str,
        hook: &HookWorkflow,
        starter: &dyn WorkflowStarter,
        begun: &mut WorkflowRecord,
    ) -> Result<Option<UserError>, UserError> {
        // The start is recorded before the request: after a kill in between, the next apply then searches for the run
        // and does not start a second one.
        self.record(key, begun).await?;
        self.journal.check_lease().await?;
        match starter.start(&hook.workflow, self.call).await {
            WorkflowStart::Started(run) => {
                begun.run = Some(run);
                Ok(None)
            }
            WorkflowStart::Unknown(failure) => Ok(Some(failure)),
            WorkflowStart::Refused(failure) => {
                // The start is recorded as ended, although there is no run, so that the next apply may start the
                // workflow.
                begun.succeeded = Some(false);
                self.record(key, begun).await?;
                Err(failure)
            }
        }
    }

    /// Returns the error for a workflow of which it is unknown whether it runs. Starting it again could run it twice.
    fn unknown(&self, hook: &HookWorkflow, search: Duration, unanswered: Option<UserError>) -> UserError {
        let WorkflowCall { stack, digest, .. } = self.call;
        let commit = self.call.commit.map_or("", CommitId::as_str);
        let cause = match &unanswered {
            Some(failure) => failure.message.clone(),
            None => "an earlier apply was stopped while it started the workflow".to_owned(),
        };
        let what = format!(
            "it is unknown whether the workflow ran: {cause}; no run with this stack and digest was found in {} s, and it is not started again",
            search.as_secs()
        );
        UserError::new(ErrorKind::Github, what)
            .hint("run the apply again: it looks for the run first, and waits for it")
            .hint(format!(
                "if the forge lists no run, start `{}` by hand with the stack `{stack}`, the commit `{commit}` and the digest `{digest}`: the next apply finds it",
                hook.workflow
            ))
            .hint(format!(
                "a run is found by its title: `{}` needs `run-name: ${{{{ inputs.stack }}}} ${{{{ inputs.digest }}}}`",
                hook.workflow
            ))
    }

    async fn record(&self, key: &str, record: &WorkflowRecord) -> Result<(), UserError> {
        let value = serde_json::to_value(record).expect("a record is plain data");
        let key = key.to_owned();
        Ok(self.journal.record(JournalEntry::Runtime { key, value }).await?)
    }
}

/// Removes the workflow records of a removed stack from its state, because the stack may come back with the same Spec.
pub(super) fn forget(state: &mut StackState) {
    state.runtime.retain(|key, _| !key.starts_with(KEY));
}

fn last_run(recorded: Option<&Value>) -> Result<Option<WorkflowRecord>, UserError> {
    let read = |value: &Value| {
        WorkflowRecord::deserialize(value).map_err(|error| {
            UserError::from_error(ErrorKind::State, error)
                .context("its record in the state cannot be read")
                .hint("use the version of Konverge that wrote it")
        })
    };
    recorded.map(read).transpose()
}

fn cannot_start() -> UserError {
    UserError::new(
        ErrorKind::Config,
        "it can be started only by `konverge ci` in a job of a forge",
    )
    .hint("apply the stack by the job of the default branch, or remove the workflow from `apply.hooks.workflows`")
}

#[cfg(test)]
#[path = "workflow_hooks_tests.rs"]
mod tests;
