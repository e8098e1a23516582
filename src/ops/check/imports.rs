//! Imports that nothing uses, by the core's own linter.

use std::collections::BTreeSet;

use super::{
    super::OpenRevision,
    super::compiler::FileContents,
    CheckedFiles,
    checked_files::{is_kcl, is_test},
};
use crate::{
    error::UserError,
    kcl::{CompileRequest, KclError, Pool},
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule, LintSeverity},
    },
};

/// One warning for each import of a file that the file does not use.
pub(super) async fn check(
    pool: &Pool,
    files: &FileContents,
    checked: &CheckedFiles<'_>,
    workspace: &OpenRevision,
) -> Result<Vec<Diagnostic>, UserError> {
    let request = CompileRequest {
        label: "lint".to_owned(),
        files: files.clone(),
        ..CompileRequest::default()
    };
    // The entries of a stack share names and are understood only together: the compile of the stack checks them.
    let entries: BTreeSet<&RepoPath> = workspace
        .layout
        .stacks
        .iter()
        .filter_map(|stack| stack.compile.as_ref().ok())
        .flat_map(|setup| setup.entries.iter().map(|entry| &entry.path))
        .collect();
    let mut found = Vec::new();
    for (path, content) in files {
        if !is_kcl(path) || is_test(path) || entries.contains(path) || !checked.is_edited(path) {
            continue;
        }
        let messages = match pool.lint(&request, path).await {
            Ok(messages) => messages,
            // The compile of a stack or a test says it.
            Err(KclError::Code(_)) => continue,
            Err(other) => return Err(other.into()),
        };
        // The linter sees one file alone, without its package: only what it says of imports holds.
        for message in messages
            .into_iter()
            .filter(|message| message.starts_with("Module '"))
        {
            let mut unused =
                Diagnostic::new(path, LintRule::Lint, &message).at(line_of(&message, content), None);
            unused.severity = LintSeverity::Warning;
            found.push(unused);
        }
    }
    Ok(found)
}

/// The linter names the import and not its line.
fn line_of(message: &str, content: &[u8]) -> Option<u32> {
    let name = message.strip_prefix("Module '")?.split('\'').next()?;
    let text = String::from_utf8_lossy(content);
    let number = text.lines().position(|line| {
        line.trim_start().strip_prefix("import ").is_some_and(|rest| {
            rest.split_whitespace()
                .any(|word| word == name || word.ends_with(&format!(".{name}")))
        })
    })?;
    u32::try_from(number + 1).ok()
}
