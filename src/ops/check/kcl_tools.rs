//! Runs the core's own tools over the checked files: format, lint, tests.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{OpenRevision, compiler::Compiler},
    CheckScope, remark,
};
use crate::{
    error::{ErrorKind, UserError},
    kcl::CompileRequest,
    model::{
        RepoPath,
        file_source::FileKind,
        lint::{Diagnostic, LintRule, LintSeverity},
        stack::Stack,
    },
};

/// Files with their contents.
pub(super) type Files = Vec<(RepoPath, Arc<[u8]>)>;

/// The checked files: all, or those of the stacks with the tests beside them.
pub(super) fn files(
    workspace: &OpenRevision,
    stacks: &[&Stack],
    scope: CheckScope<'_>,
) -> Result<Files, UserError> {
    let mut wanted: BTreeSet<RepoPath> = BTreeSet::new();
    for stack in stacks {
        wanted.extend(
            workspace
                .analysis
                .closure(stack)?
                .files
                .into_iter()
                .map(|file| file.path),
        );
    }
    let folders: BTreeSet<_> = wanted.iter().filter_map(RepoPath::parent).collect();
    let source = &workspace.source;
    let is_test = |path: &RepoPath| path.file_name().ends_with("_test.k");
    source
        .files()
        .iter()
        .filter(|(path, entry)| {
            let beside = || is_test(path) && path.parent().is_some_and(|folder| folders.contains(&folder));
            entry.kind == FileKind::File && (scope.all && is_kcl(path) || wanted.contains(*path) || beside())
        })
        .map(|(path, entry)| {
            let content = source.read(entry.blob);
            Ok((
                path.clone(),
                content.map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?,
            ))
        })
        .collect()
}

fn is_kcl(path: &RepoPath) -> bool {
    path.file_name().ends_with(".k") || path.file_name() == "kcl.mod"
}

/// Runs the tools.
pub(super) async fn run(
    compiler: &Compiler,
    files: &Files,
    workspace: &OpenRevision,
    stacks: &[&Stack],
) -> Result<Vec<Diagnostic>, UserError> {
    if !files.iter().any(|(path, _)| path.file_name().ends_with(".k")) {
        return Ok(Vec::new());
    }
    let pool = compiler.pool().await?;
    let request = CompileRequest {
        label: "check".to_owned(),
        files: files.clone(),
        ..CompileRequest::default()
    };
    let mut remarks = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.file_name().ends_with(".k")) {
        // The compiler reports a file that is not KCL.
        let Ok(text) = std::str::from_utf8(content) else {
            continue;
        };
        if let Ok(false) = pool.is_formatted(&request, text).await {
            let mut remark = remark(path, LintRule::Format, "is not formatted");
            remark.hint = Some(format!("run `kcl fmt {path}`"));
            remarks.push(remark);
        }
    }
    // The entries of a stack share names and are only valid together: compiling them has checked them.
    let entries: BTreeSet<&RepoPath> = workspace
        .layout
        .stacks
        .iter()
        .chain(stacks.iter().copied())
        .filter_map(|stack| stack.compile.as_ref().ok())
        .flat_map(|setup| setup.entries.iter().map(|entry| &entry.path))
        .collect();
    for (path, content) in files {
        let name = path.file_name();
        if !name.ends_with(".k") || name.ends_with("_test.k") || entries.contains(path) {
            continue;
        }
        // For a single file the linter sees neither its siblings nor its users; its messages about imports
        // are still correct.
        let said = pool.lint(&request, path).await?;
        for message in said.into_iter().filter(|message| message.starts_with("Module '")) {
            let mut remark = remark(path, LintRule::Lint, &message).at(line_of(&message, content), None);
            remark.severity = LintSeverity::Warning;
            remarks.push(remark);
        }
    }
    let tests = files
        .iter()
        .filter(|(path, _)| path.file_name().ends_with("_test.k"));
    let folders: BTreeSet<RepoPath> = tests.filter_map(|(path, _)| path.parent()).collect();
    for folder in folders {
        for case in pool.test(&request, &folder).await? {
            let Some(error) = case.errors.first() else {
                continue;
            };
            let place = error.place.as_ref();
            let file = place
                .and_then(|place| RepoPath::normalise(&place.file))
                .unwrap_or_else(|| folder.clone());
            let message = format!("{}: {}", case.name, error.text());
            remarks.push(remark(&file, LintRule::Test, &message).at(
                place.and_then(|place| place.line),
                place.and_then(|place| place.column),
            ));
        }
    }
    Ok(remarks)
}

/// Finds the line of an unused import, because the linter does not report it.
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
