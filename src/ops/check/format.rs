//! The format of KCL files, by the core's own formatter.

use std::path::Path;

use super::{CheckedFiles, checked_files::is_kcl};
use konverge_base::{
    checkout::{Existing, write},
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule},
    },
};
use konverge_kcl::{CompileRequest, Pool};
use konverge_run::compiler::FileContents;

/// A file that the formatter would change.
struct Unformatted {
    path: RepoPath,
    formatted: Vec<u8>,
}

async fn find(pool: &Pool, files: &FileContents, checked: &CheckedFiles<'_>) -> Vec<Unformatted> {
    let request = CompileRequest {
        label: "format".to_owned(),
        ..CompileRequest::default()
    };
    let mut found = Vec::new();
    for (path, content) in files
        .iter()
        .filter(|(path, _)| is_kcl(path) && checked.is_edited(path))
    {
        // What is not KCL fails where it is compiled.
        let Ok(text) = std::str::from_utf8(content) else {
            continue;
        };
        if let Ok(formatted) = pool.format(&request, text).await
            && formatted != text.as_bytes()
        {
            let path = path.clone();
            found.push(Unformatted { path, formatted });
        }
    }
    found
}

/// One error for each file that is not formatted.
pub(super) async fn check(pool: &Pool, files: &FileContents, checked: &CheckedFiles<'_>) -> Vec<Diagnostic> {
    let found = find(pool, files, checked).await.into_iter();
    found
        .map(|file| {
            let mut found = Diagnostic::new(&file.path, LintRule::Format, "is not formatted");
            found.hint = Some("`konverge check --fix` formats it".to_owned());
            found
        })
        .collect()
}

/// Formats the files in the checkout; returns which.
pub(super) async fn fix(
    pool: &Pool,
    files: &FileContents,
    checked: &CheckedFiles<'_>,
    root: &Path,
) -> Result<Vec<RepoPath>, UserError> {
    let mut fixed = Vec::new();
    for file in find(pool, files, checked).await {
        let written = write(
            root,
            file.path.as_str().as_ref(),
            &file.formatted,
            Existing::Replace,
        );
        written.map_err(|error| {
            UserError::new(ErrorKind::Layout, format!("the file is not formatted: {error}"))
                .at(file.path.to_string(), None, None)
                .hint("put a plain file there, or remove the link, and run it again")
        })?;
        fixed.push(file.path);
    }
    Ok(fixed)
}
