//! The `graph` use case: the dependency graph of a revision, or the part of it around some files.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::RepoPath,
};
pub use konverge_repo::affected::{ExportNode, GraphExport};
use konverge_repo::git::Repository;
use konverge_run::{OpenRevision, RevisionSpec, RunContext};

/// The selected part of the graph.
#[derive(Debug, Clone, Default)]
pub struct GraphSelection {
    /// Show only what these files or folders depend on.
    pub upstream: Vec<String>,
    /// Show only what depends on these files or folders.
    pub downstream: Vec<String>,
    /// The revision; `None`: the working tree.
    pub rev: Option<String>,
}

/// Builds the graph.
///
/// # Errors
/// The revision cannot be read, or a path leaves the repository or is unknown to all stacks.
pub fn run(run: &RunContext, view: &GraphSelection) -> Result<GraphExport, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let at = match &view.rev {
        Some(name) => RevisionSpec::Commit(repository.resolve(name)?),
        None => RevisionSpec::Worktree,
    };
    let workspace = OpenRevision::open(run, &repository, &at)?;
    workspace.layout.require_module()?;
    workspace.note_layout(run);
    let picture = workspace.analysis.picture();
    let up = paths(run, &repository, &workspace, &view.upstream)?;
    let down = paths(run, &repository, &workspace, &view.downstream)?;
    Ok(match (up.is_empty(), down.is_empty()) {
        (true, true) => picture,
        (false, true) => picture.upstream(&up),
        (true, false) => picture.downstream(&down),
        (false, false) => picture.upstream(&up).union(&picture.downstream(&down)),
    })
}

/// Resolves paths relative to the current folder, or else to the root.
fn paths(
    run: &RunContext,
    repository: &Repository,
    workspace: &OpenRevision,
    names: &[String],
) -> Result<Vec<RepoPath>, UserError> {
    let root = repository
        .root()
        .canonicalize()
        .unwrap_or_else(|_| repository.root().to_owned());
    let here = run.dir.canonicalize().ok();
    let here = here
        .and_then(|dir| RepoPath::normalize(dir.strip_prefix(&root).ok()?.to_str()?))
        .unwrap_or_default();
    let files = workspace.source.files();
    let known = |path: &RepoPath| files.keys().any(|file| file.is_within(path));
    names
        .iter()
        .map(|name| {
            let candidates = [here.join(name), RepoPath::normalize(name)];
            candidates.into_iter().flatten().find(known).ok_or_else(|| {
                UserError::new(
                    ErrorKind::Usage,
                    format!(
                        "there is no file or folder `{}` in this revision",
                        name.escape_debug()
                    ),
                )
                .hint("paths are relative to the current folder or to the repository's root")
            })
        })
        .collect()
}
