//! The parts that a forge may lack. Each is a trait of its own, which [`Forge`](crate::Forge) gives or reports as
//! [`Unsupported`](crate::Unsupported).

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{error::ForgeError, people::ReviewApproval};
use konverge_base::model::{CommitId, check_run::CheckRun};

/// Reports at a commit. Errors are those of the forge.
#[async_trait]
pub trait Checks: Send + Sync {
    /// Returns the maximum number of reports of a run; one more summarizes the rest.
    fn most_checks(&self) -> usize;

    /// Creates a completed report and returns its URL. `external_id` distinguishes this run's reports from others of the same
    /// name, so that one whose answer was lost can be found.
    async fn create_check(
        &self,
        head: &CommitId,
        check: &CheckRun,
        external_id: &str,
        details_url: Option<&str>,
    ) -> Result<Option<String>, ForgeError>;
}

/// The state of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// The apply waits for its turn.
    Queued,
    /// The apply runs.
    InProgress,
    /// The apply ended well.
    Success,
    /// The apply failed.
    Failure,
    /// The job was stopped from outside.
    Error,
    /// Another deployment took its place.
    Inactive,
    /// A state that applies never set.
    #[serde(other)]
    Other,
}

/// A deployment at the forge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Deployment {
    /// Its id; a newer one has a larger one.
    pub id: u64,
    /// Its commit.
    pub sha: String,
    /// When it was created, by the forge's clock.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// The data that its creator stored with it.
    #[serde(default)]
    pub payload: Value,
}

/// Deployments: applies in the forge's history of environments. Errors are those of the forge.
#[async_trait]
pub trait Deployments: Send + Sync {
    /// Creates a deployment and returns its id. `receipt` is stored as its payload (digest, run, outcome). It
    /// also finds the deployment again if the answer was lost, so it must name the run.
    async fn create_deployment(
        &self,
        sha: &CommitId,
        environment: &str,
        description: &str,
        receipt: &Value,
    ) -> Result<u64, ForgeError>;

    /// Returns the deployments of applies in an environment, at most 100 of the newest, the newest first; with `sha` those of
    /// this commit alone.
    async fn list_deployments(
        &self,
        environment: &str,
        sha: Option<&CommitId>,
    ) -> Result<Vec<Deployment>, ForgeError>;

    /// Returns the newest state of a deployment; `None` if it has none yet.
    async fn deployment_state(&self, deployment: u64) -> Result<Option<DeploymentState>, ForgeError>;

    /// Sets the state of a deployment.
    async fn set_deployment_status(
        &self,
        deployment: u64,
        state: DeploymentState,
        description: &str,
        log_url: Option<&str>,
    ) -> Result<(), ForgeError>;
}

/// The approval of a run in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunApproval {
    /// The account that approved the run.
    pub reviewer: String,
    /// Its text.
    pub said: String,
}

/// Environments whose reviewers let a job run. Errors are those of the forge.
#[async_trait]
pub trait Environments: Send + Sync {
    /// Returns who approved a run for this environment, each person once. Other jobs of the run may have other environments.
    async fn run_approvals(&self, run: u64, environment: &str) -> Result<Vec<RunApproval>, ForgeError>;
}

/// Edits of reviews: a person who may push may edit the texts of others.
#[async_trait]
pub trait ReviewEdits: Send + Sync {
    /// Returns the login of the last editor of a review; `None` if it was not edited. An answer that does not say so for
    /// certain is an error.
    async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>, ForgeError>;
}

/// One update of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchUpdate {
    /// The tip before; `None` for a new branch.
    pub before: Option<CommitId>,
    /// The tip after.
    pub after: CommitId,
    /// Who updated it; `None` for a deleted account.
    pub actor: Option<String>,
    /// True if the forge merged a pull request: the actor pressed the button and contributed no code.
    pub is_merge: bool,
}

/// The updates of branches. Author and committer are claims of a commit itself; only the forge knows who pushed it.
#[async_trait]
pub trait BranchActivity: Send + Sync {
    /// Returns the latest updates of a branch, the newest first, until `until` says that they are enough.
    async fn movements(
        &self,
        branch: &str,
        until: &(dyn for<'a> Fn(&'a [BranchUpdate]) -> bool + Send + Sync),
    ) -> Result<Vec<BranchUpdate>, ForgeError>;
}
