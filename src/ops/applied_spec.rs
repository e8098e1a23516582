//! Compiles the last applied Spec again. If the code has changed since, drift is compared with this Spec.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::Mutex;

use super::{AnalysisCache, OpenRevision, Planner, RevisionSpec, SpecSource, affected::credentials};
use crate::{
    error::UserError,
    git::Repository,
    model::{CommitId, StackId, spec::Spec, state::StackState},
};

/// The commits in the states. Each is opened once, when it is needed.
pub(super) struct AppliedSpec<'a> {
    planning: &'a Planner,
    opened: Mutex<Option<OpenedRevision>>,
}

struct OpenedRevision {
    repository: Repository,
    known: AnalysisCache,
    /// `None` if the commit is not available.
    revisions: HashMap<CommitId, Option<Arc<OpenRevision>>>,
}

impl<'a> AppliedSpec<'a> {
    pub(super) fn new(planning: &'a Planner) -> Self {
        Self {
            planning,
            opened: Mutex::new(None),
        }
    }

    /// The Spec that a state records by its digest. `None` if it is not available: the last apply failed or
    /// had no commit, the commit cannot be fetched, or it now compiles to another Spec.
    pub(super) async fn spec(&self, stack: &StackId, state: &StackState) -> Option<Spec> {
        let SpecSource::Compiled { compiler, .. } = &self.planning.wanted else {
            return None;
        };
        state.input_digest?;
        let (commit, digest) = (state.commit.as_ref()?, state.spec_digest?);
        let workspace = self.revision(commit).await?;
        let there = workspace.layout.stack(stack)?;
        let spec = compiler.spec(&workspace, there).await.ok()?;
        (spec.digest() == digest).then_some(spec)
    }

    async fn revision(&self, commit: &CommitId) -> Option<Arc<OpenRevision>> {
        let mut opened = self.opened.lock().await;
        if opened.is_none() {
            let repository = Repository::discover(&self.planning.run.dir).ok()?;
            *opened = Some(OpenedRevision {
                known: AnalysisCache::open(&self.planning.run, &repository),
                repository,
                revisions: HashMap::new(),
            });
        }
        let opened = opened.as_mut()?;
        if let Some(found) = opened.revisions.get(commit) {
            return found.clone();
        }
        let revision = match self.open(opened, commit).await {
            Ok(workspace) => Some(Arc::new(workspace)),
            Err(failure) => {
                self.planning.run.notes.note(&format!(
                    "note: commit {}, which was applied last, cannot be read here ({failure}), so drift in fields that the code has changed since is not detected",
                    commit.short()
                ));
                None
            }
        };
        opened.revisions.insert(commit.clone(), revision.clone());
        revision
    }

    async fn open(&self, opened: &OpenedRevision, commit: &CommitId) -> Result<OpenRevision, UserError> {
        let credentials = credentials(&self.planning.run);
        opened.repository.ensure(commit, credentials.as_ref()).await?;
        let at = RevisionSpec::Commit(commit.clone());
        OpenRevision::open_knowing(
            &opened.known,
            &opened.repository,
            &at,
            Some(&self.planning.config),
        )
    }
}
