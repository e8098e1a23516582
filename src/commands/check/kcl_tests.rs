//! Runs the repository's own tests, `*_test.k`. Each folder with tests is a program of its own, analyzed like a stack.

use std::collections::{BTreeMap, HashSet};

use tokio_util::sync::CancellationToken;

use super::{
    CheckedFiles,
    checked_files::{is_test, is_vendored},
    programs,
};
use crate::commands::selected_stacks::SelectedStacks;
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        file_source::FileKind,
        lint::{Diagnostic, LintRule},
        stack::{Entry, Stack},
    },
};
use konverge_kcl::TestOutcome;
use konverge_repo::affected::Analysis;
use konverge_run::OpenRevision;
use konverge_run::compiler::Compiler;

/// Runs the tests in the folders of the scope, and those that read a file which the change touches.
pub(super) async fn check(
    compiler: Compiler<'_>,
    cancel: &CancellationToken,
    selected: &SelectedStacks,
    checked: &CheckedFiles<'_>,
) -> Result<Vec<Diagnostic>, UserError> {
    let before = selected.base.as_ref().map(|base| analyze(base, None));
    let before = before.transpose()?;
    let here = analyze(&selected.workspace, before.as_ref())?;
    let is_touched = |stack: &Stack| {
        before.as_ref().is_some_and(|before| {
            // A program that is new, or whose inputs differ from the base, is touched.
            let then = before.input_digest(stack).ok();
            then.is_none() || then != here.input_digest(stack).ok()
        })
    };
    let mut found = Vec::new();
    for stack in &here.layout().stacks {
        if checked.runs_tests_in(&stack.folder) || is_touched(stack) {
            found.extend(run(compiler, cancel, &here, stack).await?);
        }
    }
    Ok(found)
}

async fn run(
    compiler: Compiler<'_>,
    cancel: &CancellationToken,
    analysis: &Analysis,
    stack: &Stack,
) -> Result<Vec<Diagnostic>, UserError> {
    let folder = &stack.folder;
    let request = compiler.request(analysis, stack).await;
    let request = match request.map_err(UserError::from) {
        Ok(request) => request,
        Err(failure) if cancel.is_cancelled() => return Err(failure),
        Err(failure) => {
            let place = failure.location.as_ref();
            let file = place.and_then(|place| RepoPath::normalize(&place.file));
            let message = format!("the tests in this folder cannot be run: {}", failure.message);
            let found = Diagnostic::new(&file.unwrap_or_else(|| folder.clone()), LintRule::Test, &message);
            return Ok(vec![found.first_hint(&failure.hints)]);
        }
    };
    let mut found = Vec::new();
    for case in compiler.pool().await?.test(&request, folder).await? {
        match case.outcome {
            TestOutcome::Passed => {}
            TestOutcome::NotRun(why) => {
                let message = format!("{} is not run: {why}", case.name);
                found.push(Diagnostic::new(&case.file, LintRule::Test, &message).warning());
            }
            TestOutcome::Failed(errors) => {
                let Some(error) = errors.first() else { continue };
                let place = error.place.as_ref();
                let file = place.and_then(|place| RepoPath::normalize(&place.file));
                let message = format!("{}: {}", case.name, error.text());
                let failed = Diagnostic::new(&file.unwrap_or(case.file), LintRule::Test, &message);
                found.push(failed.at(
                    place.and_then(|place| place.line),
                    place.and_then(|place| place.column),
                ));
            }
        }
    }
    Ok(found)
}

/// Analyzes the folders with tests, each as if it were a stack.
fn analyze(workspace: &OpenRevision, earlier: Option<&Analysis>) -> Result<Analysis, UserError> {
    let files = workspace.source.files().iter();
    let files = files.filter(|(_, entry)| entry.kind == FileKind::File);
    let test_folders: HashSet<RepoPath> = files
        .clone()
        .filter(|(path, _)| is_test(path) && !is_vendored(workspace, path))
        .filter_map(|(path, _)| path.parent())
        .collect();
    let mut programs: BTreeMap<RepoPath, Vec<Entry>> = BTreeMap::new();
    for (path, _) in files {
        let name = path.file_name();
        if !name.ends_with(".k") || name.starts_with('_') {
            continue;
        }
        let folder = path.as_str().rsplit_once('/').map_or("", |(folder, _)| folder);
        if let Some(folder) = test_folders.get(folder) {
            let entries = programs.entry(folder.clone()).or_default();
            entries.push(Entry::main(path.clone()));
        }
    }
    programs::analyze(workspace, programs, earlier)
}
