//! A revision and the stacks of it that were asked for, for what needs neither state nor infrastructure.

use super::{At, Request, Run, Selection, Workspace, session};
use crate::{error::Failure, git::Repository, model::stack::Stack};

/// An opened revision.
pub struct Selected {
    /// The revision.
    pub workspace: Workspace,
    /// The stacks, sorted by folder; removed ones are not there.
    pub stacks: Vec<Stack>,
}

/// Opens the revision of a request and finds its stacks.
///
/// # Errors
/// Whatever is wrong with repository, revisions, configuration or names.
pub fn open(run: &Run, request: &Request) -> Result<Selected, Failure> {
    let repository = Repository::discover(&run.dir)?;
    let at = match &request.rev {
        Some(rev) => At::Commit(repository.resolve(rev)?),
        None => At::Worktree,
    };
    let workspace = Workspace::open(&repository, &at)?;
    workspace.layout.require_module()?;
    let stacks = match &request.selection {
        Selection::All => workspace.layout.stacks.clone(),
        Selection::Named(names) => workspace.named(run, repository.root(), names)?,
        Selection::Affected => match session::base_commit(&repository, request, &at)? {
            Some(commit) => {
                let base = Workspace::open_under(&repository, &At::Commit(commit), &workspace.config)?;
                let affected = workspace.analysis.compare(&base.analysis);
                session::affected_targets(&affected, Some(&base), &workspace)
                    .into_iter()
                    .filter_map(|target| target.head)
                    .collect()
            }
            None => workspace.layout.stacks.clone(),
        },
    };
    Ok(Selected { workspace, stacks })
}
