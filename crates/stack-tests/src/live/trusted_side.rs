//! [`TrustedSide`]: the settings that live tests take from the default branch.

use super::run_events;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, CommitId, stack::Stack},
};
use konverge_config::Config;
use konverge_repo::git::Repository;
use konverge_run::{
    ComparedRevisions, KeyUse, OpenRevision, RevisionSpec, RunContext, StateBackend, state_backend,
};

/// The number of tests that run or are cleaned up at once.
pub(super) const AT_ONCE: usize = 4;

/// The parts of the default branch that live tests need.
pub(super) struct TrustedSide {
    pub(super) run: RunContext,
    pub(super) repository: Repository,
    /// The revision of the default branch.
    pub(super) revision: OpenRevision,
    /// Its configuration, with the clusters that allow tests, and without rules for stacks.
    pub(super) config: Config,
    /// The states of the repository. A test has a part of their store.
    pub(super) backend: StateBackend,
}

impl TrustedSide {
    /// Opens the default branch at the commit that GitHub names, or else as this clone has it.
    ///
    /// # Errors
    /// The event of this job may not run live tests, the branch or the store cannot be read, or no cluster allows
    /// tests.
    pub(super) async fn open(run: &RunContext, trusted_commit: Option<&CommitId>) -> Result<Self, UserError> {
        run_events::check(run)?;
        let repository = Repository::discover(&run.dir)?;
        let (branch, commit) = match trusted_commit {
            Some(commit) => ("the default branch".to_owned(), commit.clone()),
            None => {
                let branch = repository.default_branch()?;
                let commit = repository.resolve(&branch)?;
                (format!("`{branch}`"), commit)
            }
        };
        let at = RevisionSpec::Commit(commit);
        let revision = ComparedRevisions::open(run, &repository, &at, None)?.head;
        let mut config = revision.config.clone();
        config.clusters.retain(|_, cluster| cluster.tests);
        config.stacks.clear();
        if config.clusters.is_empty() {
            let what = format!("no cluster in the konverge.yaml of {branch} allows live tests");
            return Err(UserError::new(ErrorKind::Config, what).hint(
                "set `tests: true` at a cluster that may have throw-away namespaces, and merge it first: \
                 `clusters: {testing: {tests: true}}`",
            ));
        }
        let backend = state_backend::open(run, &config, Some(&repository), KeyUse::Look).await?;
        Ok(Self {
            run: run.clone(),
            repository,
            revision,
            config,
            backend,
        })
    }

    /// Returns the cluster for a stack's tests: the stack's own if it allows tests, or else the only one that does.
    pub(super) fn cluster(&self, stack: &Stack) -> Result<ClusterName, String> {
        let rules = self.revision.config.for_place(&stack.id, &stack.folder);
        let own = stack.cluster.clone().or(rules.cluster);
        if let Some(own) = own.filter(|own| self.config.clusters.contains_key(own)) {
            return Ok(own);
        }
        let mut names = self.config.clusters.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Ok(only.clone()),
            _ => Err(
                "the cluster of the stack does not allow tests, and several others do: name one of them in `stacks`"
                    .to_owned(),
            ),
        }
    }
}
