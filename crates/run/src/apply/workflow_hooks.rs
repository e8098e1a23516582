//! Workflows around the apply of a stack: started once for each Spec, and waited for.
//!
//! The state says that a workflow is about to start before it starts, and which run it is after that. A run whose end
//! was not seen is found and waited for; only an end that was seen is followed by another run. If nobody knows whether a
//! start took effect, and no run is found, nothing is started: never twice for one digest.

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
    },
};
use konverge_config::{Config, HookWorkflow, WorkflowTime};
use konverge_engine::Journal;

/// The time limit of a workflow without `timeout` in the configuration.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The maximum search time for a run whose start has an unknown result. A forge may list a new run late.
pub const SEARCH: Duration = Duration::from_secs(60);

/// The prefix of the keys of the records.
const KEY: &str = "hook-workflow/";

/// The inputs of a workflow.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowCall<'a> {
    /// The stack.
    pub stack: &'a StackId,
    /// Its folder.
    pub folder: &'a RepoPath,
    /// Its other names: the workflows that are configured for them run, too.
    pub known_as: &'a OtherNames,
    /// The commit that is applied.
    pub commit: Option<&'a CommitId>,
    /// The digest of the Spec.
    pub digest: Digest,
}

/// The result of starting a workflow.
#[derive(Debug)]
pub enum WorkflowStart {
    /// The workflow runs; the value is the id of its run.
    Started(u64),
    /// The forge refused the start, so the workflow does not run.
    Refused(UserError),
    /// The workflow may run: the forge did not answer.
    Unknown(UserError),
}

/// Starts workflows of the default branch, and waits for them.
#[async_trait]
pub trait WorkflowStarter: Send + Sync {
    /// Returns the id of the newest run of a workflow, or 0.
    ///
    /// # Errors
    /// It is not known.
    async fn newest_run(&self, workflow: &str) -> Result<u64, UserError>;

    /// Starts a workflow.
    async fn start(&self, workflow: &str, call: WorkflowCall<'_>) -> WorkflowStart;

    /// Looks for the run of an earlier [`Self::start`], whose id is greater than `after`, until `timeout`. `None` does
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
    /// The id of its run; `None` if nobody knows whether it started.
    run: Option<u64>,
    /// The end of the run; `None` if nobody saw it.
    succeeded: Option<bool>,
}

impl WorkflowHooks<'_> {
    /// Runs the workflows that are due before or after the apply, one after the other.
    ///
    /// # Errors
    /// One failed, or cannot run here.
    pub(super) async fn run(&self, when: WorkflowTime) -> Result<(), UserError> {
        let WorkflowCall {
            stack,
            folder,
            known_as,
            ..
        } = self.call;
        for hook in self.config.hook_workflows(when, stack, folder, known_as) {
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
        let last = last_run(self.recorded.get(&key))?;
        let same = last.as_ref().filter(|last| last.digest == self.call.digest);
        if same.is_some_and(|last| last.succeeded == Some(true)) {
            return Ok(());
        }
        let starter = self.starter.ok_or_else(cannot_start)?;
        let timeout = hook.timeout.or(self.config.apply.hooks.timeout);
        let timeout = timeout.map_or(TIMEOUT, konverge_config::Span::duration);
        // A run of this digest whose end was not seen is looked for, and never started again.
        let begun = match same.filter(|last| last.succeeded.is_none()) {
            Some(last) => BegunRun::from_record(last),
            None => {
                // A run that was recorded may be missing in a list that is late.
                let newest = starter.newest_run(&hook.workflow).await?;
                let known = last.and_then(|last| last.run).unwrap_or(0);
                self.start(&key, hook, starter, newest.max(known)).await?
            }
        };
        let BegunRun {
            after,
            run,
            unanswered,
        } = begun;
        let run = match run {
            Some(run) => run,
            None => {
                let search = timeout.min(SEARCH);
                let found = starter.find(&hook.workflow, self.call, after, search).await?;
                found.ok_or_else(|| self.unknown(hook, search, unanswered))?
            }
        };
        self.record(&key, BegunRun::new(after, Some(run)), None).await?;
        let failure = starter.wait(&hook.workflow, run, timeout).await?;
        let succeeded = Some(failure.is_none());
        self.record(&key, BegunRun::new(after, Some(run)), succeeded)
            .await?;
        failure.map_or(Ok(()), Err)
    }

    /// Records that a workflow is about to start, and starts it.
    async fn start(
        &self,
        key: &str,
        hook: &HookWorkflow,
        starter: &dyn WorkflowStarter,
        after: u64,
    ) -> Result<BegunRun, UserError> {
        // Recorded before the request: after a kill in between nobody knows whether it took effect.
        self.record(key, BegunRun::new(after, None), None).await?;
        self.journal.check_lease().await?;
        match starter.start(&hook.workflow, self.call).await {
            WorkflowStart::Started(run) => Ok(BegunRun::new(after, Some(run))),
            WorkflowStart::Unknown(failure) => Ok(BegunRun {
                unanswered: Some(failure),
                ..BegunRun::new(after, None)
            }),
            WorkflowStart::Refused(failure) => {
                // An end without a run: the next apply may start it.
                self.record(key, BegunRun::new(after, None), Some(false)).await?;
                Err(failure)
            }
        }
    }

    /// Returns the error for a workflow that may or may not run. Starting it again could run it twice.
    fn unknown(&self, hook: &HookWorkflow, search: Duration, unanswered: Option<UserError>) -> UserError {
        let WorkflowCall { stack, digest, .. } = self.call;
        let commit = self.call.commit.map_or("", CommitId::as_str);
        let cause = match &unanswered {
            Some(failure) => failure.message.clone(),
            None => "an earlier run was stopped while it started the workflow".to_owned(),
        };
        let what = format!(
            "it is unknown whether the workflow ran: {cause}; no workflow run with this stack and digest was found in {} s, and the workflow is not started again",
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

    async fn record(&self, key: &str, begun: BegunRun, succeeded: Option<bool>) -> Result<(), UserError> {
        let record = WorkflowRecord {
            digest: self.call.digest,
            after: begun.after,
            run: begun.run,
            succeeded,
        };
        let value = serde_json::to_value(record).expect("a record is plain data");
        let key = key.to_owned();
        self.journal.record(JournalEntry::Runtime { key, value }).await
    }
}

/// A run that began, or may have begun.
struct BegunRun {
    /// The newest run before it.
    after: u64,
    /// `None` if it is not known.
    run: Option<u64>,
    /// Why the start in this apply has no clear result.
    unanswered: Option<UserError>,
}

impl BegunRun {
    fn new(after: u64, run: Option<u64>) -> Self {
        Self {
            after,
            run,
            unanswered: None,
        }
    }

    fn from_record(record: &WorkflowRecord) -> Self {
        Self::new(record.after, record.run)
    }
}

/// Removes the records from the state of a stack that was removed: it may come back with the same Spec.
pub(super) fn forget(state: &mut StackState) {
    state.runtime.retain(|key, _| !key.starts_with(KEY));
}

fn last_run(recorded: Option<&Value>) -> Result<Option<WorkflowRecord>, UserError> {
    let Some(value) = recorded else {
        return Ok(None);
    };
    let record = WorkflowRecord::deserialize(value).map_err(|error| {
        UserError::from_error(ErrorKind::State, error)
            .context("its record in the state cannot be read")
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
        "it can be started only by `konverge ci` in a job of a forge",
    )
    .hint("apply the stack by the job of the default branch, or remove the workflow from `apply.hooks.workflows`")
}

#[cfg(test)]
#[path = "workflow_hooks_tests.rs"]
mod tests;
