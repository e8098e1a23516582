//! Starts a workflow of a branch, finds its runs, and says how one ended.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE, TokenPermission},
    error::GithubError,
    pull_requests::encoded,
};

const NEED: TokenPermission = TokenPermission("actions: write");

/// A run that a dispatch started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DispatchedRun {
    /// The number in its page's URL. A later run has a higher one.
    pub id: u64,
    /// What the workflow's `run-name` evaluated to, or else the name of the workflow.
    #[serde(default)]
    pub display_title: String,
    /// Its page.
    #[serde(default)]
    pub html_url: String,
    /// How it ended; `None` while it has not.
    #[serde(default)]
    pub conclusion: Option<String>,
}

impl Client {
    /// Starts the workflow of a file of `.github/workflows` on a branch, and returns the id of its run. Without an answer
    /// it is not repeated, because nobody knows whether it runs.
    ///
    /// # Errors
    /// Errors of GitHub. After [`GithubError::is_uncertain`] it may run.
    pub async fn dispatch_workflow(
        &self,
        file: &str,
        branch: &str,
        inputs: &Value,
    ) -> Result<u64, GithubError> {
        #[derive(Deserialize)]
        struct Started {
            workflow_run_id: u64,
        }
        let path = self.path(&format!("/actions/workflows/{}/dispatches", encoded(file)));
        let body = json!({"ref": branch, "inputs": inputs, "return_run_details": true});
        let started: Started = self.post_once(&path, &body, NEED).await?;
        Ok(started.workflow_run_id)
    }

    /// The newest runs of a workflow that were dispatched on a branch, the newest first; not more than `limit`, which is
    /// at most 100.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn dispatched_runs(
        &self,
        file: &str,
        branch: &str,
        limit: usize,
    ) -> Result<Vec<DispatchedRun>, GithubError> {
        #[derive(Deserialize)]
        struct Page {
            workflow_runs: Vec<DispatchedRun>,
        }
        let path = self.path(&format!(
            "/actions/workflows/{}/runs?event=workflow_dispatch&branch={}&per_page={}",
            encoded(file),
            encoded(branch),
            limit.min(PAGE)
        ));
        let page: Page = self.get(&path, NEED).await?;
        Ok(page.workflow_runs)
    }

    /// How a run stands; `None` if it was deleted.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>, GithubError> {
        match self.get(&self.path(&format!("/actions/runs/{run}")), NEED).await {
            Ok(found) => Ok(Some(found)),
            Err(GithubError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
