//! [`BranchConfig`]: konverge.yaml of the default branch. It says who may do what, and names the repository.

use konverge_base::{error::UserError, model::CommitId};
use konverge_config::Config;
use konverge_forge::{RepositoryPages, WorkflowPage};
use konverge_repo::git::Repository;
use konverge_run::RunContext;

/// konverge.yaml of the default branch.
#[derive(Debug, Clone)]
pub struct BranchConfig {
    /// The commit; `None` if a file was given in its place.
    pub commit: Option<CommitId>,
    /// The configuration.
    pub config: Config,
}

impl BranchConfig {
    /// Reads it where the run is; `None` outside a repository with a default branch.
    ///
    /// # Errors
    /// The commit cannot be read, or its file is not valid.
    pub fn find(run: &RunContext) -> Result<Option<Self>, UserError> {
        match Repository::discover(&run.dir) {
            Ok(repository) if repository.default_branch().is_ok() => Self::load(&repository).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads it in a repository.
    ///
    /// # Errors
    /// There is no default branch, its commit cannot be read, or its file is not valid.
    pub fn load(repository: &Repository) -> Result<Self, UserError> {
        let commit = repository.resolve(&repository.default_branch()?)?;
        Self::load_at(repository, commit)
    }

    /// Reads it at the tip of the default branch that a job found.
    ///
    /// # Errors
    /// The commit cannot be read, or its file is not valid.
    pub(super) fn load_at(repository: &Repository, commit: CommitId) -> Result<Self, UserError> {
        let config = Config::load(repository.revision(&commit)?.as_ref())?;
        Ok(Self {
            commit: Some(commit),
            config,
        })
    }
}

/// Returns the repository at its forge: as `portal.workflow` of the default branch names it, the job, or a clone of a host with
/// the name of a forge. Nothing of the store names it.
pub fn forge(run: &RunContext, config: Option<&BranchConfig>) -> Option<RepositoryPages> {
    let of_config = config.and_then(|config| config.config.portal.workflow.as_deref());
    let of_clone = || RepositoryPages::of_clone(&Repository::discover(&run.dir).ok()?.origin_url()?);
    let of_config = of_config
        .and_then(WorkflowPage::parse)
        .map(|page| page.repository().clone());
    match (of_config, run.repository_pages()) {
        // If both mean the same URL, use that of the job: it knows which part of the path belongs to the server.
        (Some(named), Some(of_job)) if named.url() == of_job.url() => Some(of_job),
        (named, of_job) => named.or(of_job).or_else(of_clone),
    }
}
