//! [`BranchConfig`]: `konverge.yaml` of the default branch, which names the permissions and the repository.

use konverge_base::{error::UserError, model::CommitId};
use konverge_config::Config;
use konverge_forge::{RepositoryPages, WorkflowPage};
use konverge_repo::git::Repository;
use konverge_run::RunContext;

/// `konverge.yaml` of the default branch.
#[derive(Debug, Clone)]
pub struct BranchConfig {
    /// The commit of the file; `None` if the user gave a file instead.
    pub commit: Option<CommitId>,
    /// The configuration on the branch.
    pub config: Config,
}

impl BranchConfig {
    /// Reads `konverge.yaml` of the repository in which the run works; `None` without a repository or a default branch.
    ///
    /// # Errors
    /// The commit cannot be read, or its file is invalid.
    pub fn find(run: &RunContext) -> Result<Option<Self>, UserError> {
        match Repository::discover(&run.dir) {
            Ok(repository) if repository.default_branch().is_ok() => Self::load(&repository).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads `konverge.yaml` at the default branch of a repository.
    ///
    /// # Errors
    /// There is no default branch, its commit cannot be read, or its file is invalid.
    pub fn load(repository: &Repository) -> Result<Self, UserError> {
        let commit = repository.resolve(&repository.default_branch()?)?;
        Self::load_at(repository, commit)
    }

    /// Reads the file at a commit of the default branch.
    ///
    /// # Errors
    /// The commit cannot be read, or its file is invalid.
    pub(super) fn load_at(repository: &Repository, commit: CommitId) -> Result<Self, UserError> {
        let config = Config::load(repository.revision(&commit)?.as_ref())?;
        Ok(Self {
            commit: Some(commit),
            config,
        })
    }
}

/// Returns the repository at its forge, from `portal.workflow` of the default branch, the job, or the remote of a clone
/// whose host has the name of a forge. Documents of the store have no influence, because they could lead to another
/// host.
pub fn forge(run: &RunContext, config: Option<&BranchConfig>) -> Option<RepositoryPages> {
    let of_config = config.and_then(|config| config.config.portal.workflow.as_deref());
    let of_clone = || RepositoryPages::of_clone(&Repository::discover(&run.dir).ok()?.origin_url()?);
    let of_config = of_config
        .and_then(WorkflowPage::parse)
        .map(|page| page.repository().clone());
    match (of_config, run.repository_pages()) {
        // If both name the same URL, the one of the job is used: it knows which part of the path belongs to the server.
        (Some(named), Some(of_job)) if named.url() == of_job.url() => Some(of_job),
        (named, of_job) => named.or(of_job).or_else(of_clone),
    }
}
