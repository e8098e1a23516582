//! Workflows around the apply of a stack: started once for each Spec, and waited for.
//!
//! The state says that a workflow is about to start before it starts, and which run it is after that. A run whose end
//! was not seen is found and waited for; only an end that was seen is followed by another run.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, RepoPath, StackId,
        state::{JournalEntry, StackState},
    },
};
use konverge_config::{Config, HookWorkflow, WorkflowTime};
use konverge_engine::Journal;

/// How long a workflow may run if the configuration does not say so.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The keys of the records begin so.
const KEY: &str = "hook-workflow/";

/// What a workflow is told.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowCall<'a> {
    /// The stack.
    pub stack: &'a StackId,
    /// Its folder.
    pub folder: &'a RepoPath,
    /// The commit that is applied.
    pub commit: Option<&'a CommitId>,
    /// The digest of the Spec.
    pub digest: Digest,
}

/// Starts workflows of the default branch, and waits for them.
#[async_trait]
pub trait WorkflowStarter: Send + Sync {
    /// The newest run of a workflow, or 0.
    ///
    /// # Errors
    /// It is not known.
    async fn newest_run(&self, workflow: &str) -> Result<u64, UserError>;

    /// Starts a workflow and returns its run.
    ///
    /// # Errors
    /// It did not start, as far as is known.
    async fn start(&self, workflow: &str, call: WorkflowCall<'_>) -> Result<u64, UserError>;

    /// The run that an earlier [`Self::start`] began, if it did. It is newer than `after`.
    ///
    /// # Errors
    /// It is not known.
    async fn find(
        &self,
        workflow: &str,
        call: WorkflowCall<'_>,
        after: u64,
    ) -> Result<Option<u64>, UserError>;

    /// Waits for the end of a run. `Ok` holds why it failed, or nothing.
    ///
    /// # Errors
    /// Its end is not known.
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

/// The last run of a workflow, in the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WorkflowRecord {
    digest: Digest,
    /// The newest run before it was started.
    after: u64,
    /// Its run; `None` if it may have started or not.
    run: Option<u64>,
    /// How it ended; `None` if that was not seen.
    succeeded: Option<bool>,
}

impl WorkflowHooks<'_> {
    /// Runs those of a time that are due, one after the other.
    ///
    /// # Errors
    /// One failed, or cannot run here.
    pub(super) async fn run(&self, when: WorkflowTime) -> Result<(), UserError> {
        for hook in self
            .config
            .hook_workflows(when, self.call.stack, self.call.folder)
        {
            let (time, file) = (word(when), &hook.workflow);
            let what = format!("the workflow `{file}` (`{time}`)");
            self.run_one(hook)
                .await
                .map_err(|failure| failure.context(what))?;
        }
        Ok(())
    }

    async fn run_one(&self, hook: &HookWorkflow) -> Result<(), UserError> {
        let key = format!("{KEY}{}/{}", word(hook.when), hook.workflow);
        let last = last_run(self.recorded.get(&key))?.filter(|last| last.digest == self.call.digest);
        if last.as_ref().is_some_and(|last| last.succeeded == Some(true)) {
            return Ok(());
        }
        let starter = self.starter.ok_or_else(cannot_start)?;
        let begun = match last.filter(|last| last.succeeded.is_none()) {
            None => None,
            Some(WorkflowRecord { after, run: None, .. }) => {
                let found = starter.find(&hook.workflow, self.call, after).await?;
                found.map(|run| (after, run))
            }
            Some(WorkflowRecord {
                after,
                run: Some(run),
                ..
            }) => Some((after, run)),
        };
        let (after, run) = match begun {
            Some(begun) => begun,
            None => {
                let after = starter.newest_run(&hook.workflow).await?;
                self.record(&key, (after, None), None).await?;
                self.journal.fence().await?;
                (after, starter.start(&hook.workflow, self.call).await?)
            }
        };
        self.record(&key, (after, Some(run)), None).await?;
        let timeout = hook.timeout.or(self.config.apply.hooks.timeout);
        let timeout = timeout.map_or(TIMEOUT, konverge_config::Span::duration);
        let failure = starter.wait(&hook.workflow, run, timeout).await?;
        self.record(&key, (after, Some(run)), Some(failure.is_none()))
            .await?;
        failure.map_or(Ok(()), Err)
    }

    async fn record(
        &self,
        key: &str,
        (after, run): (u64, Option<u64>),
        succeeded: Option<bool>,
    ) -> Result<(), UserError> {
        let record = WorkflowRecord {
            digest: self.call.digest,
            after,
            run,
            succeeded,
        };
        let value = serde_json::to_value(record).expect("a record is plain data");
        let key = key.to_owned();
        self.journal.record(JournalEntry::Runtime { key, value }).await
    }
}

/// Removes the records from the state of a stack that left: it may come back with the same Spec.
pub(super) fn forget(state: &mut StackState) {
    state.runtime.retain(|key, _| !key.starts_with(KEY));
}

fn last_run(recorded: Option<&Value>) -> Result<Option<WorkflowRecord>, UserError> {
    let Some(value) = recorded else {
        return Ok(None);
    };
    let record = WorkflowRecord::deserialize(value).map_err(|error| {
        UserError::new(
            ErrorKind::State,
            format!("its record in the state cannot be read: {error}"),
        )
        .hint("use the version of Konverge that wrote it")
    })?;
    Ok(Some(record))
}

fn word(when: WorkflowTime) -> &'static str {
    match when {
        WorkflowTime::Pre => "pre",
        WorkflowTime::Post => "post",
    }
}

fn cannot_start() -> UserError {
    UserError::new(
        ErrorKind::Config,
        "it can be started only by `konverge ci` in a job of GitHub Actions",
    )
    .hint("apply the stack by the job of the default branch, or remove the workflow from `apply.hooks.workflows`")
}

#[cfg(test)]
#[path = "workflow_hooks_tests.rs"]
mod tests;
