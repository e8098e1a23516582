//! Runs of the forge's CI: whether one is over; workflows that are started and found again.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{ci_job::JobInfo, error::ForgeError};

/// A run that a dispatch started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DispatchedRun {
    /// The number in the URL of its page. A later run has a higher number.
    pub id: u64,
    /// The evaluated `run-name` of the workflow, or else the name of the workflow.
    #[serde(default)]
    pub display_title: String,
    /// Its page.
    #[serde(default)]
    pub html_url: String,
    /// The conclusion; `None` while the run has not ended.
    #[serde(default)]
    pub conclusion: Option<String>,
}

/// Reads and starts runs of the forge's CI. Errors are those of the forge.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Returns true if the run of a URL is over: all of it, or at least the attempt in the URL, because a later one has
    /// started. `None` if it is not the URL of a run of this forge; then nothing is asked. [`ForgeError::NotFound`] also if
    /// the token may not see that repository.
    async fn is_over(&self, url: &str) -> Result<Option<bool>, ForgeError>;

    /// Starts the workflow of a file on a branch, and returns the id of its run. Without an answer the request is not repeated,
    /// because the workflow may run already (see [`ForgeError::is_uncertain`]).
    async fn dispatch_workflow(&self, file: &str, branch: &str, inputs: &Value) -> Result<u64, ForgeError>;

    /// Returns the newest runs of a workflow that were dispatched on a branch, the newest first; not more than `limit`, which
    /// is at most 100.
    async fn dispatched_runs(
        &self,
        file: &str,
        branch: &str,
        limit: usize,
    ) -> Result<Vec<DispatchedRun>, ForgeError>;

    /// Returns a run as it is now; `None` if it was deleted.
    async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>, ForgeError>;

    /// Returns [`ForgeError::Outdated`] if the server is too old for the questions above.
    async fn answers_about_runs(&self) -> Result<(), ForgeError> {
        Ok(())
    }

    /// Returns true if only people who may push can start a workflow.
    fn starters_may_push(&self) -> bool;

    /// Returns who started the first attempt of a job's run, and so gave its inputs. The runner says so, unless the person who
    /// starts a run may overwrite that: then the forge is asked, or it is an error.
    async fn starter(&self, job: &JobInfo) -> Result<String, ForgeError> {
        Ok(job.starter.clone())
    }

    /// Returns the number of a job's attempt, from 1. The runner says so, or else the forge counts.
    async fn attempt(&self, job: &JobInfo) -> Result<u32, ForgeError> {
        Ok(job.run_attempt)
    }

    /// Returns the time now by the forge's clock: the time of its last answer, plus the time since. `None` before the first
    /// answer.
    fn server_time(&self) -> Option<Timestamp>;
}
