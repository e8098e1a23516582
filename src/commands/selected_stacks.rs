//! Opens a revision and selects stacks, for use cases that need neither state nor infrastructure.

use std::{path::PathBuf, sync::Arc};

use konverge_base::{
    error::UserError,
    model::{Shard, stack::Stack},
    variables,
};
use konverge_repo::git::{GitError, Repository};
use konverge_run::{
    AnalysisCache, ComparedRevisions, OpenRequest, OpenRevision, RevisionSpec, RunContext, Selection, session,
};

/// An opened revision with selected stacks.
pub struct SelectedStacks {
    /// The revision of the stacks.
    pub workspace: Arc<OpenRevision>,
    /// The stacks, sorted by folder, without removed ones.
    pub stacks: Vec<Stack>,
    /// The base of the comparison, if the stacks are those that a change affects.
    pub base: Option<OpenRevision>,
    /// The analysis of files so far. It is saved on drop at the latest.
    pub known: Arc<AnalysisCache>,
}

/// Opens the revision of a request and selects its stacks.
///
/// # Errors
/// Errors of the repository, revisions, configuration or names.
pub async fn open(run: &RunContext, request: &OpenRequest) -> Result<SelectedStacks, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let at = match &request.rev {
        Some(rev) => RevisionSpec::Commit(repository.resolve(rev)?),
        None => RevisionSpec::Worktree,
    };
    open_at(run, &repository, request, at).await
}

/// Opens the staged files with the stacks that they affect; for the first commit these are all stacks. `git commit`
/// names the index in the environment of its hooks.
///
/// # Errors
/// The same as for [`open`]; the index has a conflict.
pub async fn open_staged(run: &RunContext, shard: Option<Shard>) -> Result<SelectedStacks, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let selection = match repository.resolve("HEAD") {
        Ok(_) => Selection::Affected,
        Err(GitError::NothingCommitted) => Selection::All,
        Err(error) => return Err(error.into()),
    };
    let request = OpenRequest {
        selection,
        base: Some("HEAD".to_owned()),
        shard,
        ..OpenRequest::default()
    };
    let at = RevisionSpec::Staged(run.var(variables::GIT_INDEX_FILE).map(PathBuf::from));
    open_at(run, &repository, &request, at).await
}

async fn open_at(
    run: &RunContext,
    repository: &Repository,
    request: &OpenRequest,
    at: RevisionSpec,
) -> Result<SelectedStacks, UserError> {
    let mut revisions = ComparedRevisions::open(run, repository, &at, None)?;
    let mut stacks = match &request.selection {
        Selection::All => revisions.head.layout.stacks.clone(),
        Selection::Named(names) => revisions.head.find_stacks(run, repository.root(), names)?,
        Selection::Affected => match session::base_commit(run, repository, request, &at).await? {
            Some(commit) => {
                revisions = revisions.with_base(repository, commit)?;
                let targets = revisions.targets(&revisions.affected());
                targets.into_iter().filter_map(|target| target.head).collect()
            }
            None => revisions.head.layout.stacks.clone(),
        },
    };
    if let Some(shard) = request.shard {
        shard.keep(&mut stacks);
    }
    let ComparedRevisions { known, head, base } = revisions;
    Ok(SelectedStacks {
        workspace: Arc::new(head),
        stacks,
        base,
        known: Arc::new(known),
    })
}
