//! Parts of a forge's API that some forges lack. Each is a trait, which [`Forge`](crate::Forge) returns or reports
//! as [`Unsupported`](crate::Unsupported).

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{error::Result, people::ReviewApproval};
use konverge_base::model::{CommitId, check_run::CheckRun};

/// Check reports on a commit. All errors come from the forge.
#[async_trait]
pub trait Checks: Send + Sync {
    /// Returns the maximum number of reports of one run, without the report that summarizes the rest.
    fn most_checks(&self) -> usize;

    /// Creates a completed report and returns its URL. `external_id` identifies this run's reports among others of
    /// the same name, so that a report can be found if the response of its creation was lost.
    async fn create_check(
        &self,
        head: &CommitId,
        check: &CheckRun,
        external_id: &str,
        details_url: Option<&str>,
    ) -> Result<Option<String>>;
}

/// The state of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// The apply waits for its turn.
    Queued,
    /// The apply runs.
    InProgress,
    /// The apply succeeded.
    Success,
    /// The apply failed.
    Failure,
    /// The job was stopped from outside.
    Error,
    /// A newer deployment replaced this one.
    Inactive,
    /// A state that Konverge never sets.
    #[serde(other)]
    Other,
}

/// A deployment at the forge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Deployment {
    /// The id; a newer deployment has a larger id.
    pub id: u64,
    /// The deployed commit.
    pub sha: String,
    /// The time of creation, by the forge's clock.
    pub created_at: Option<Timestamp>,
    /// The data that the creator stored with the deployment.
    #[serde(default)]
    pub payload: Value,
}

/// Deployments record applies in the forge's history of an environment. All errors come from the forge.
#[async_trait]
pub trait Deployments: Send + Sync {
    /// Creates a deployment and returns its id. `receipt` (digest, run, outcome) is stored as its payload. If the
    /// response is lost, the payload also finds the deployment again, so it must name the run.
    async fn create_deployment(
        &self,
        sha: &CommitId,
        environment: &str,
        description: &str,
        receipt: &Value,
    ) -> Result<u64>;

    /// Returns the deployments of applies in an environment, the newest first, at most 100. With `sha`, returns
    /// only deployments of that commit.
    async fn list_deployments(&self, environment: &str, sha: Option<&CommitId>) -> Result<Vec<Deployment>>;

    /// Returns the newest state of a deployment; `None` if it has none yet.
    async fn deployment_state(&self, deployment: u64) -> Result<Option<DeploymentState>>;

    /// Sets the state of a deployment.
    async fn set_deployment_status(
        &self,
        deployment: u64,
        state: DeploymentState,
        description: &str,
        log_url: Option<&str>,
    ) -> Result<()>;
}

/// The approval of a run for an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunApproval {
    /// The account that approved the run.
    pub reviewer: String,
    /// The comment of the reviewer.
    pub said: String,
}

/// Environments whose reviewers allow a job to run. All errors come from the forge.
#[async_trait]
pub trait Environments: Send + Sync {
    /// Returns the people who approved a run for this environment, each once. Approvals for other environments of
    /// the same run do not count.
    async fn run_approvals(&self, run: u64, environment: &str) -> Result<Vec<RunApproval>>;
}

/// Edits of reviews. They matter because a person who may push may edit the reviews of others.
#[async_trait]
pub trait ReviewEdits: Send + Sync {
    /// Returns the login of the last editor of a review; `None` if the review was never edited. A response that
    /// leaves this unclear is an error.
    async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>>;
}

/// One update of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchUpdate {
    /// The tip before the update; `None` for a new branch.
    pub before: Option<CommitId>,
    /// The tip after the update.
    pub after: CommitId,
    /// The user who updated the branch; `None` for a deleted account.
    pub actor: Option<String>,
    /// True if the forge merged a pull request: then the actor only clicked the button and contributed no code.
    pub is_merge: bool,
}

/// The updates of branches. A commit only claims its author and committer; the forge alone knows who pushed it.
#[async_trait]
pub trait BranchActivity: Send + Sync {
    /// Returns the latest updates of a branch, the newest first. Reads further pages until `until` returns true.
    async fn movements(
        &self,
        branch: &str,
        until: &(dyn for<'a> Fn(&'a [BranchUpdate]) -> bool + Send + Sync),
    ) -> Result<Vec<BranchUpdate>>;
}
