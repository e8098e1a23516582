//! The job that drives rollouts: what it runs with, and what its forge and its policies decide.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::carried_commit::OlderCommit;
use konverge_base::{
    error::UserError,
    model::{CommitId, Digest},
};
use konverge_config::Config;
use konverge_forge::Forge;
use konverge_repo::git::{GitCredentials, Repository};
use konverge_run::{RunContext, StateBackend, apply::Approver, environments::EnvironmentScope};

/// A job that drives rollouts.
pub struct RolloutJob<'a> {
    /// The context of the run.
    pub run: &'a RunContext,
    /// The repository with the commits.
    pub repository: &'a Repository,
    /// The credentials to fetch a commit with.
    pub credentials: Option<&'a GitCredentials>,
    /// The forge, whose clock is read beside that of the machine.
    pub forge: &'a dyn Forge,
    /// The tip of the default branch.
    pub tip: &'a CommitId,
    /// The digests that were given to the job.
    pub given: &'a BTreeSet<Digest>,
    /// The stacks that the job applies.
    pub scope: &'a EnvironmentScope<'a>,
    /// The policies of the job.
    pub policies: &'a dyn JobPolicies,
}

/// The decisions that the policies of a job make for its rollouts.
#[async_trait]
pub trait JobPolicies: Send + Sync {
    /// Opens an older commit of the default branch for applies, with the permissions of the branch's tip.
    ///
    /// # Errors
    /// The commit cannot be fetched or read; errors of the store and of the forge.
    async fn open_commit(
        &self,
        commit: &CommitId,
        config: &Config,
        backend: &StateBackend,
    ) -> Result<OlderCommit<'_>, UserError>;

    /// Returns the approver of plans that restore what was applied before: by freezes, policy sets and
    /// `max_destructive`.
    ///
    /// # Errors
    /// The tip of the default branch cannot be read.
    fn rollback_approver(
        &self,
        config: &Config,
        backend: &StateBackend,
    ) -> Result<Arc<dyn Approver>, UserError>;
}
