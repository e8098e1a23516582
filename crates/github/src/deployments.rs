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

const NEED: TokenPermission = TokenPermission("deployments: write");

/// The state of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// The apply runs.
    InProgress,
    /// The apply ended well.
    Success,
    /// The apply failed.
    Failure,
    /// It was stopped from outside.
    Error,
}

#[derive(Deserialize)]
struct CreatedDeployment {
    id: u64,
    #[serde(default)]
    payload: Value,
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
            "auto_merge": false, "required_contexts": [], "task": "konverge:apply",
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
