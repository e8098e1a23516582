//! Compares generated models with the CRDs of the repository from which they were generated.

use super::checked_files::{CheckedFiles, file_of};
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule},
    },
};
use konverge_config::{FILE_NAME, ModelSourceConfig};
use konverge_model_sources::{repository_paths, stale_in_revision};
use konverge_run::OpenRevision;

/// Returns one error for each property that differs. Sources outside the repository are left to `konverge models
/// check`.
pub(super) fn check(
    workspace: &OpenRevision,
    checked: &CheckedFiles<'_>,
) -> Result<Vec<Diagnostic>, UserError> {
    let mut found = Vec::new();
    for entry in workspace
        .config
        .models
        .sources
        .iter()
        .filter(|entry| concerns(entry, workspace, checked))
    {
        match compare(workspace, entry) {
            Ok(stale) => found.extend(stale),
            // A source that cannot be read is an error of the repository, so it becomes a diagnostic like the others.
            Err(failure) => {
                let place = failure.location.as_ref();
                let file = file_of(place).unwrap_or_else(|| RepoPath::root().child(FILE_NAME));
                let message = format!(
                    "the models in `{}` cannot be generated: {}",
                    entry.into.escape_debug(),
                    failure.message
                );
                found.push(Diagnostic::new(&file, LintRule::Models, &message).first_hint(&failure.hints));
            }
        }
    }
    Ok(found)
}

/// Returns true if all sources are in the repository, and one of their files or a model is checked.
fn concerns(entry: &ModelSourceConfig, workspace: &OpenRevision, checked: &CheckedFiles<'_>) -> bool {
    let Some(places) = repository_paths(entry) else {
        return false;
    };
    let is_of = |path: &RepoPath| places.iter().any(|place| path == place || path.is_within(place));
    let mut files = workspace.source.files().keys().filter(|path| is_of(path));
    checked.is_in_scope(&RepoPath::root().child(FILE_NAME)) || files.any(|path| checked.is_in_scope(path))
}

fn compare(workspace: &OpenRevision, entry: &ModelSourceConfig) -> Result<Vec<Diagnostic>, UserError> {
    let hint = format!(
        "import the models again: `konverge models import {}`",
        command(entry)
    );
    let mut found = Vec::new();
    for model in stale_in_revision(workspace.source.as_ref(), entry)? {
        for difference in &model.differences {
            let message = format!("stale model: {difference}");
            found.push(Diagnostic::new(&model.file, LintRule::Models, &message).hint(&hint));
        }
    }
    Ok(found)
}

/// Returns the arguments of `konverge models import` that import an entry again.
fn command(entry: &ModelSourceConfig) -> String {
    let only = entry
        .only
        .iter()
        .flat_map(|kind| ["--only".to_owned(), kind.clone()]);
    let all = entry
        .from
        .iter()
        .cloned()
        .chain(only)
        .chain(["--into".to_owned(), entry.into.clone()]);
    let words: Vec<_> = all.map(|word| word.escape_debug().to_string()).collect();
    words.join(" ")
}
