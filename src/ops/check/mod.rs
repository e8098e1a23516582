//! The `check` use case: validates a Konfig repository before any infrastructure is queried.

mod golden;
mod kcl_tools;
mod mixed_imports;
mod nondeterminism;
mod ownership;
mod schema;

use super::{
    RunContext,
    compiler::{self, Compiler},
    selection::SelectedStacks,
};
use crate::{
    error::{ErrorKind, UserError},
    github::workflow_commands,
    model::{
        RepoPath,
        check_run::Annotation,
        lint::{Diagnostic, LintReport, LintRule, LintSeverity},
        stack::Stack,
    },
    spec,
};

/// What to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckScope<'a> {
    /// Check every file of the repository, not only those of the selected stacks.
    pub all: bool,
    /// Rewrite golden files that differ.
    pub update: bool,
    /// The checks to skip.
    pub skip: &'a [LintRule],
}

/// Checks a revision and some of its stacks.
///
/// # Errors
/// The core is not available, an object cannot be read, or the run is interrupted. Errors in the repository
/// are diagnostics.
pub async fn run(
    run: &RunContext,
    selected: &SelectedStacks,
    root: &std::path::Path,
    scope: CheckScope<'_>,
) -> Result<LintReport, UserError> {
    let SelectedStacks { workspace, stacks } = selected;
    let mut remarks = structure(selected, scope);
    let compiler = Compiler::new(run, &workspace.config);
    let (good, broken): (Vec<&Stack>, Vec<&Stack>) = stacks.iter().partition(|stack| stack.compile.is_ok());
    for stack in broken {
        if let Err(error) = &stack.compile {
            remarks
                .push(remark(&error.file, LintRule::Structure, &error.message).at(error.line, error.column));
        }
    }
    let mut compiled = Vec::new();
    for stack in &good {
        match compiler.compile_for_print(workspace, stack).await {
            Ok(spec) => {
                remarks.extend(golden::compare(workspace, root, stack, &spec, scope.update)?);
                let crds = compiler::crds(workspace, &stack.project_folder)?;
                if let Err(error) = spec::append_crds(&mut spec.clone(), &crds) {
                    remarks.push(diagnostic_from_error(stack, &UserError::from(error)));
                }
                compiled.push((*stack, spec));
            }
            Err(failure) if failure.kind == ErrorKind::Interrupted => return Err(failure),
            // Without a core every stack would fail in the same way.
            Err(failure)
                if failure.location.is_none()
                    && failure.hints.iter().any(|hint| hint.contains("kcl install")) =>
            {
                return Err(failure);
            }
            Err(failure) => remarks.push(diagnostic_from_error(stack, &failure)),
        }
    }
    remarks.extend(ownership::check(workspace, &compiled));
    remarks.extend(schema::check(run, workspace, compiled)?);
    let files = kcl_tools::files(workspace, &good, scope)?;
    remarks.extend(nondeterminism::scan(&files, &good));
    remarks.extend(mixed_imports::find(workspace, &files, &good)?);
    remarks.extend(kcl_tools::run(&compiler, &files, workspace, &good).await?);
    remarks.retain(|remark| !scope.skip.contains(&remark.rule));
    remarks.sort();
    remarks.dedup();
    Ok(LintReport {
        version: 1,
        stacks: stacks.len(),
        remarks,
    })
}

/// Annotations as workflow commands for GitHub's runner, one per line.
pub fn workflow_commands(notes: &[Annotation]) -> String {
    let lines = workflow_commands::annotations(notes).into_iter();
    lines.map(|line| line + "\n").collect()
}

/// The errors of the layout, and settings that no stack uses.
fn structure(selected: &SelectedStacks, scope: CheckScope<'_>) -> Vec<Diagnostic> {
    let SelectedStacks { workspace, stacks } = selected;
    let concerns = |file: &RepoPath| {
        scope.all
            || stacks.iter().any(|stack| {
                file.is_within(&stack.folder) || file.parent().as_ref() == Some(&stack.project_folder)
            })
    };
    let problems = workspace
        .layout
        .problems
        .iter()
        .filter(|problem| concerns(&problem.file))
        .map(|problem| {
            remark(&problem.file, LintRule::Structure, &problem.message).at(problem.line, problem.column)
        });
    let orphan = |file: &&RepoPath| {
        let folder = match file.file_name() {
            "kcl.yaml" => file.parent(),
            "settings.yaml" => file
                .parent()
                .filter(|above| above.file_name() == "ci-test")
                .and_then(|above| above.parent()),
            _ => None,
        };
        let known = |folder: &RepoPath| {
            workspace
                .layout
                .stacks
                .iter()
                .any(|stack| stack.folder == *folder)
        };
        concerns(file) && folder.is_some_and(|folder| !known(&folder))
    };
    let orphans = workspace.source.files().keys().filter(orphan).map(|file| {
        let mut remark = remark(
            file,
            LintRule::Structure,
            "belongs to no stack: there is no stack.yaml beside it",
        );
        remark.severity = LintSeverity::Warning;
        remark
    });
    problems.chain(orphans).collect()
}

fn diagnostic_from_error(stack: &Stack, failure: &UserError) -> Diagnostic {
    let place = failure.location.as_ref();
    let file = place.and_then(|place| RepoPath::normalise(&place.file));
    let file = file.unwrap_or_else(|| stack.folder.child("stack.yaml"));
    let mut remark = remark(&file, LintRule::Compile, &failure.message).at(
        place.and_then(|place| place.line),
        place.and_then(|place| place.column),
    );
    remark.hint = failure.hints.first().cloned();
    remark
}

/// A diagnostic that fails the check.
fn remark(file: &RepoPath, rule: LintRule, message: &str) -> Diagnostic {
    Diagnostic {
        file: file.clone(),
        line: None,
        column: None,
        rule,
        severity: LintSeverity::Error,
        message: message.to_owned(),
        hint: None,
    }
}
