//! `state import --workspace`: copies a workspace from Kusion's backend into the repository.

use super::import;
use crate::RunContext;
use konverge_base::{
    checkout::{self, Existing, WrittenFile},
    error::{ErrorKind, SharedError, UserError},
    model::RepoPath,
};
use konverge_kusion as kusion;
use konverge_repo::git::Repository;

/// The result of the import of a workspace.
#[derive(Debug, Clone)]
pub struct ImportedWorkspace {
    /// The written file in the repository.
    pub file: RepoPath,
    /// The keys of `context` that were left out because their values are credentials.
    pub left_out: Vec<String>,
}

/// Writes the workspace `name` into the repository. `from` is its file, the folder of a backend, or a URL of one of
/// them (a folder's URL ends in `/`).
///
/// # Errors
/// The source has no such workspace, or the repository has the file already.
pub async fn import_workspace(
    run: &RunContext,
    from: &str,
    name: &str,
) -> Result<ImportedWorkspace, UserError> {
    let file = kusion::workspace_file(name).ok_or_else(|| {
        UserError::new(
            ErrorKind::Usage,
            format!("`{}` is not the name of a workspace", name.escape_debug()),
        )
    })?;
    let repository = Repository::discover(&run.dir)?;
    let text = import::fetch_file(run, from, file.as_str()).await?;
    let imported = kusion::import_text(&file, &text)?;
    let written = checkout::write(
        repository.root(),
        file.as_str().as_ref(),
        imported.text.as_bytes(),
        Existing::Keep,
    );
    let refused = |why: SharedError| {
        UserError::from_error(ErrorKind::Config, why).context(format_args!("could not write {file}"))
    };
    match written.map_err(|error| refused(error.into()))? {
        WrittenFile::Created => Ok(ImportedWorkspace {
            file,
            left_out: imported.left_out,
        }),
        WrittenFile::Kept => Err(refused("the file exists".into()).hint(format!(
            "remove the file first, or name another workspace: `--workspace {name}-kusion`"
        ))),
    }
}
