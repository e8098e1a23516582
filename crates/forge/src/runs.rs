//! Runs of the forge's CI: checks if a run is over, starts workflows, and finds the started runs.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{ci_job::JobInfo, error::Result};

/// A run that a dispatch started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DispatchedRun {
    /// The id in the URL of the run. A later run has a higher id.
    pub id: u64,
    /// The title of the run: the evaluated `run-name` of the workflow, or else the name of the workflow.
    #[serde(default)]
    pub display_title: String,
    /// The URL of the run.
    #[serde(default)]
    pub html_url: String,
    /// The conclusion; `None` while the run has not ended.
    pub conclusion: Option<String>,
}

/// Reads and starts runs of the forge's CI. All errors come from the forge.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Returns true if the run of a URL is over. If the URL names an attempt, it is also over as soon as a later
    /// attempt has started. Returns `None`, without a request, if the URL is not a run of this forge.
    /// [`crate::ForgeError::NotFound`] can also mean that the token may not see the repository.
    async fn is_over(&self, url: &str) -> Result<Option<bool>>;

    /// Starts the workflow of a file on a branch, and returns the id of the run. Without a response the request is
    /// not repeated, because the workflow may already run (see [`crate::ForgeError::is_uncertain`]).
    async fn dispatch_workflow(&self, file: &str, branch: &str, inputs: &Value) -> Result<u64>;

    /// Returns the newest runs of a workflow that were started by a dispatch on a branch, the newest first. `limit`
    /// is at most 100.
    async fn dispatched_runs(&self, file: &str, branch: &str, limit: usize) -> Result<Vec<DispatchedRun>>;

    /// Returns the present state of a run; `None` if the run was deleted.
    async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>>;

    /// Returns [`crate::ForgeError::Outdated`] if the server is too old for the methods above.
    async fn answers_about_runs(&self) -> Result<()> {
        Ok(())
    }

    /// Returns true if only people who may push can start a workflow.
    fn starters_may_push(&self) -> bool;

    /// Returns the user who started the first attempt of a job's run, and so chose its inputs. Normally the runner
    /// provides this. If the user could overwrite that value, the forge is asked, and without an answer this is an
    /// error.
    async fn starter(&self, job: &JobInfo) -> Result<String> {
        Ok(job.starter.clone())
    }

    /// Returns the number of the job's attempt, from 1. It comes from the runner, or else from the forge.
    async fn attempt(&self, job: &JobInfo) -> Result<u32> {
        Ok(job.run_attempt)
    }

    /// Returns the present time by the forge's clock: the time in its last response, plus the time since then.
    /// `None` before the first response.
    fn server_time(&self) -> Option<Timestamp>;
}
