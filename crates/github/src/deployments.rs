//! Deployments: applies in GitHub's history of environments.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE, TokenPermission},
    error::GithubError,
    pull_requests::encoded,
    statuses::shortened,
};
use konverge_base::model::CommitId;

/// The task of the deployments of applies.
const TASK: &str = "konverge:apply";
const NEED: TokenPermission = TokenPermission("deployments: write");

/// The state of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// The apply is not its turn yet.
    Queued,
    /// The apply runs.
    InProgress,
    /// The apply ended well.
    Success,
    /// The apply failed.
    Failure,
    /// It was stopped from outside.
    Error,
    /// Another deployment took its place.
    Inactive,
    /// A state that applies never set.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CreatedDeployment {
    id: u64,
    #[serde(default)]
    payload: Value,
}

/// A deployment of GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Deployment {
    /// Its id; a newer one has a larger one.
    pub id: u64,
    /// Its commit.
    pub sha: String,
    /// When it was created, by GitHub's clock.
    #[serde(default)]
    pub created_at: Option<jiff::Timestamp>,
    /// What its creator stored with it.
    #[serde(default)]
    pub payload: Value,
}

#[derive(Deserialize)]
struct DeploymentStatus {
    id: u64,
    state: DeploymentState,
}

impl Client {
    /// Creates a deployment and returns its id. `receipt` is stored as its payload (digest, run, outcome). It
    /// also finds the deployment again if the answer was lost, so it must name the run.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn create_deployment(
        &self,
        sha: &CommitId,
        environment: &str,
        description: &str,
        receipt: &Value,
    ) -> Result<u64, GithubError> {
        // By default GitHub would merge the base branch and wait for every status.
        let body = json!({
            "ref": sha, "environment": environment, "description": shortened(description), "payload": receipt,
            "auto_merge": false, "required_contexts": [], "task": TASK,
        });
        let list = self.path(&format!(
            "/deployments?sha={sha}&environment={}&per_page={PAGE}",
            encoded(environment)
        ));
        let made: CreatedDeployment = self
            .create(&self.path("/deployments"), &body, NEED, || async {
                let all: Vec<CreatedDeployment> = self.list(&list, NEED).await?;
                Ok(all.into_iter().find(|made| made.payload == *receipt))
            })
            .await?;
        Ok(made.id)
    }

    /// The deployments of applies in an environment, at most 100 of the newest, the newest first; with `sha` those of this
    /// commit alone.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn deployments(
        &self,
        environment: &str,
        sha: Option<&CommitId>,
    ) -> Result<Vec<Deployment>, GithubError> {
        let commit = sha.map_or_else(String::new, |sha| format!("&sha={sha}"));
        let path = self.path(&format!(
            "/deployments?environment={}&task={}&per_page={PAGE}{commit}",
            encoded(environment),
            encoded(TASK)
        ));
        let (mut page, _): (Vec<Deployment>, _) = self.page(&path, NEED).await?;
        page.sort_by_key(|deployment| std::cmp::Reverse(deployment.id));
        Ok(page)
    }

    /// The newest state of a deployment; `None` if it has none yet.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn deployment_state(&self, deployment: u64) -> Result<Option<DeploymentState>, GithubError> {
        let path = self.path(&format!("/deployments/{deployment}/statuses?per_page={PAGE}"));
        let (page, _): (Vec<DeploymentStatus>, _) = self.page(&path, NEED).await?;
        let newest = page.into_iter().max_by_key(|status| status.id);
        Ok(newest.map(|status| status.state))
    }

    /// Sets the state of a deployment.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn set_deployment_status(
        &self,
        deployment: u64,
        state: DeploymentState,
        description: &str,
        log_url: Option<&str>,
    ) -> Result<(), GithubError> {
        let mut body = json!({"state": state, "description": shortened(description)});
        if let Some(url) = log_url {
            body["log_url"] = json!(url);
        }
        // The newest status counts, so a repeated request has no further effect.
        let path = self.path(&format!("/deployments/{deployment}/statuses"));
        let _: Value = self.set(Method::POST, &path, &body, NEED).await?;
        Ok(())
    }
}
