//! Opens a revision and selects stacks, for use cases that need neither state nor infrastructure.

use konverge_base::{error::UserError, model::stack::Stack};
use konverge_repo::git::Repository;
use konverge_run::{AnalysisCache, OpenRequest, OpenRevision, RevisionSpec, RunContext, Selection, session};

/// An opened revision with selected stacks.
pub struct SelectedStacks {
    /// The revision that the stacks are of.
    pub workspace: OpenRevision,
    /// The stacks, sorted by folder, without removed ones.
    pub stacks: Vec<Stack>,
    /// What a change is compared with, where the stacks are those that it affects.
    pub base: Option<OpenRevision>,
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
    let known = AnalysisCache::open(run, &repository);
    let workspace = OpenRevision::open_knowing(&known, &repository, &at, None)?;
    workspace.layout.require_module()?;
    workspace.note_layout(run);
    let mut compared = None;
    let mut stacks = match &request.selection {
        Selection::All => workspace.layout.stacks.clone(),
        Selection::Named(names) => workspace.find_stacks(run, repository.root(), names)?,
        Selection::Affected => match session::base_commit(run, &repository, request, &at).await? {
            Some(commit) => {
                let base = session::open_base(&known, &repository, commit, &workspace.config)?;
                known.keep(&base);
                let affected = workspace.analysis.compare(&base.analysis);
                let targets = session::affected_targets(&affected, Some(&base), &workspace);
                compared = Some(base);
                targets.into_iter().filter_map(|target| target.head).collect()
            }
            None => workspace.layout.stacks.clone(),
        },
    };
    if let Some(shard) = request.shard {
        shard.keep(&mut stacks);
    }
    Ok(SelectedStacks {
        workspace,
        stacks,
        base: compared,
    })
}
