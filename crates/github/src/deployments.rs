//! Deployments record applies in GitHub's history of an environment.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, PAGE};
use konverge_base::model::CommitId;
use konverge_forge::{Deployment, DeploymentState, Deployments, Result, one_line};
use konverge_rest::{TokenPermission, encoded};

/// The task by which deployments of applies are recognized.
const TASK: &str = "konverge:apply";
const NEED: TokenPermission = TokenPermission("deployments: write");

#[derive(Deserialize)]
struct CreatedDeployment {
    id: u64,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize)]
struct DeploymentStatus {
    id: u64,
    state: DeploymentState,
}

#[async_trait]
impl Deployments for Client {
    async fn create_deployment(
        &self,
        sha: &CommitId,
        environment: &str,
        description: &str,
        receipt: &Value,
    ) -> Result<u64> {
        // These fields switch off GitHub's defaults: to merge the base branch first, and to require all statuses.
        let body = json!({
            "ref": sha, "environment": environment, "description": one_line(description), "payload": receipt,
            "auto_merge": false, "required_contexts": [], "task": TASK,
        });
        let list = self.path(&format!(
            "/deployments?sha={sha}&environment={}&per_page={PAGE}",
            encoded(environment)
        ));
        let find = || async {
            let all: Vec<CreatedDeployment> = self.rest.list(&list, NEED).await?;
            Ok(all.into_iter().find(|made| made.payload == *receipt))
        };
        let made = self
            .rest
            .create(
                &self.path("/deployments"),
                &body,
                NEED,
                |made: CreatedDeployment| made,
                find,
            )
            .await?;
        Ok(made.id)
    }

    async fn list_deployments(&self, environment: &str, sha: Option<&CommitId>) -> Result<Vec<Deployment>> {
        let commit = sha.map_or_else(String::new, |sha| format!("&sha={sha}"));
        let path = self.path(&format!(
            "/deployments?environment={}&task={}&per_page={PAGE}{commit}",
            encoded(environment),
            encoded(TASK)
        ));
        let (mut page, _): (Vec<Deployment>, _) = self.rest.page(&path, NEED).await?;
        page.sort_by_key(|deployment| std::cmp::Reverse(deployment.id));
        Ok(page)
    }

    async fn deployment_state(&self, deployment: u64) -> Result<Option<DeploymentState>> {
        let path = self.path(&format!("/deployments/{deployment}/statuses?per_page={PAGE}"));
        let (page, _): (Vec<DeploymentStatus>, _) = self.rest.page(&path, NEED).await?;
        let newest = page.into_iter().max_by_key(|status| status.id);
        Ok(newest.map(|status| status.state))
    }

    async fn set_deployment_status(
        &self,
        deployment: u64,
        state: DeploymentState,
        description: &str,
        log_url: Option<&str>,
    ) -> Result<()> {
        let mut body = json!({"state": state, "description": one_line(description)});
        if let Some(url) = log_url {
            body["log_url"] = json!(url);
        }
        // Only the newest status counts, so a repeated request has no further effect.
        let path = self.path(&format!("/deployments/{deployment}/statuses"));
        let _: Value = self.rest.set(Method::POST, &path, &body, NEED).await?;
        Ok(())
    }
}
