//! The `check` use case: validates a Konfig repository before any infrastructure is queried.

mod checked_files;
mod conventions;
mod data_files;
mod format;
mod golden;
mod golden_text;
mod imports;
mod kcl_tests;
mod mixed_imports;
mod models;
mod nondeterminism;
mod policy;
mod programs;
mod schema;
mod secret_references;
mod shared_objects;
mod spec_equality;
mod stack_outputs;

use std::path::Path;

pub use checked_files::FileScope;
use checked_files::{CheckedFiles, file_of, is_kcl};
use futures::{StreamExt as _, stream};
use golden::GoldenFiles;

use super::selected_stacks::SelectedStacks;
use konverge_base::{
    error::{Location, UserError},
    model::{
        RepoPath,
        check_run::Annotation,
        event::Step,
        lint::{Diagnostic, LintReport, LintRule},
        spec::Spec,
        stack::Stack,
    },
};
use konverge_engine::spec;
use konverge_report::stack_test_results as test_report;
use konverge_run::{
    OpenRevision, RunContext, StepCounter,
    compiler::{self, Compilers},
    forge,
};

/// The number of stacks that are compiled at once; the pool has fewer workers.
const AT_ONCE: usize = 8;

/// Scope of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckScope<'a> {
    /// The files to check.
    pub files: FileScope,
    /// Write golden files that differ.
    pub update: bool,
    /// Format the files that are not formatted.
    pub fix: bool,
    /// Check only the policy sets.
    pub only_policy: bool,
    /// The checks to skip.
    pub skip: &'a [LintRule],
    /// Files to check besides those of `files`.
    pub also: &'a [RepoPath],
}

/// Checks a revision and some of its stacks.
///
/// # Errors
/// The core is not available, an object cannot be read, or the run is interrupted. Errors in the repository
/// are diagnostics.
pub async fn run(
    run: &RunContext,
    selected: &SelectedStacks,
    root: &Path,
    scope: CheckScope<'_>,
) -> Result<LintReport, UserError> {
    let compilers = Compilers::new(run, &selected.workspace.config);
    run_with(run, &compilers, selected, root, scope).await
}

/// Checks as [`run`] does, with compilers whose workers may be started already.
///
/// # Errors
/// The same as for [`run`].
pub async fn run_with(
    run: &RunContext,
    compilers: &Compilers,
    selected: &SelectedStacks,
    root: &Path,
    scope: CheckScope<'_>,
) -> Result<LintReport, UserError> {
    let workspace = &selected.workspace;
    let compiler = compilers.for_revision(workspace);
    let stacks = &checked_stacks(selected);
    let mut found = structure(selected, stacks, scope);
    found.extend(conventions::check(workspace, stacks));
    let (good, broken): (Vec<&Stack>, Vec<&Stack>) = stacks.iter().partition(|stack| stack.compile.is_ok());
    for stack in broken {
        if let Err(error) = &stack.compile {
            found.push(
                Diagnostic::new(&error.file, LintRule::Structure, &error.message)
                    .at(error.line, error.column),
            );
        }
    }
    let goldens = GoldenFiles::new(workspace, root, &run.secrets);
    let mut compiled = Vec::new();
    let counter = StepCounter::start(run, Step::Compile, good.len());
    // Compile ahead, but yield in the order of the stacks, so that the diagnostics have a stable order.
    let compiles = good.iter().map(|stack| compiler.compile_for_print(stack));
    let mut compiles = stream::iter(compiles).buffered(AT_ONCE);
    for stack in &good {
        let printed = compiles.next().await.expect("each stack is compiled");
        let whole = printed.and_then(|printed| {
            let mut whole = printed.clone();
            let crds = compiler::crds(workspace, &stack.project_folder)?;
            spec::append_crds(&mut whole, &crds)?;
            compiled.push((*stack, printed));
            Ok(whole)
        });
        match whole {
            Ok(whole) if scope.update => {
                if let Some(path) = goldens.update(stack, &whole)? {
                    run.notes.info(&format!("{path} is written"));
                }
            }
            Ok(_) if scope.only_policy => {}
            Ok(whole) => found.extend(goldens.compare(stack, &whole)?),
            // Without a core every stack would fail in the same way, so end the check.
            Err(error) if run.cancel.is_cancelled() || error.is_of_the_core() => {
                return Err(error.into());
            }
            Err(error) => found.extend(diagnostics_of_failure(stack, &error.error)),
        }
        counter.advance();
    }
    // An update writes missing golden files, so only a check reports them.
    if !scope.update {
        found.extend(golden::find_missing(selected, stacks));
    }
    if !scope.only_policy {
        found.extend(stack_outputs::check(workspace, compilers, &compiled, &run.secrets).await);
    }
    for (stack, spec) in &mut compiled {
        // The outputs of other stacks are not known here. A rule that reads one reports that it cannot decide.
        *spec = konverge_run::stack_outputs::without_values(Some(&stack.reads), std::mem::take(spec));
    }
    found.extend(policy::check(workspace, &compiled, &run.secrets).await);
    if scope.only_policy {
        found.retain(|found| matches!(found.rule, LintRule::Policy | LintRule::Compile));
        return Ok(LintReport::new(stacks.len(), found));
    }
    found.extend(secret_references::check(workspace, &compiled));
    // A stack that does not compile is already reported, so its tests are not run.
    let tested: Vec<Stack> = if scope.skip.contains(&LintRule::Test) {
        Vec::new()
    } else {
        compiled.iter().map(|(stack, _)| (*stack).clone()).collect()
    };
    found.extend(shared_objects::check(workspace, &compiled));
    found.extend(schema::check(run, workspace, compiled)?);
    let checked = CheckedFiles::new(selected, stacks, scope.files, scope.also)?;
    found.extend(models::check(workspace, &checked)?);
    let files = checked.contents()?;
    let mut judged = nondeterminism::scan(&files, &good);
    judged.extend(mixed_imports::find(workspace, &files, &good)?);
    found.extend(judged.into_iter().filter(|found| checked.is_judged(&found.file)));
    if files.iter().any(|(path, _)| is_kcl(path)) {
        let pool = &compiler.pool().await?;
        if scope.fix {
            for path in format::fix(run, pool, &files, &checked, root).await? {
                run.notes.info(&format!("{path} is formatted"));
            }
        } else {
            found.extend(format::check(run, pool, &files, &checked).await)
        }
        found.extend(imports::check(&files, &checked, workspace)?);
    }
    found.extend(kcl_tests::check(compiler, &run.cancel, selected, &checked).await?);
    let tests = konverge_stack_tests::run_in(run, compilers, workspace, &tested).await?;
    found.extend(tests.iter().flat_map(test_report::diagnostics));
    found.extend(data_files::check(run, compiler, selected, &checked).await?);
    found.retain(|found| !scope.skip.contains(&found.rule));
    Ok(LintReport::new(stacks.len(), found))
}

/// Returns the golden file of a stack with the text for a Spec. `None` if it has that text already, or does not exist.
///
/// # Errors
/// The file cannot be read.
pub fn updated_golden(
    run: &RunContext,
    workspace: &OpenRevision,
    root: &Path,
    stack: &Stack,
    printed: &Spec,
) -> Result<Option<(RepoPath, String)>, UserError> {
    if workspace.source.files().contains_key(&golden::path_of(stack)) {
        GoldenFiles::new(workspace, root, &run.secrets).updated(stack, printed)
    } else {
        Ok(None)
    }
}

/// Returns the selected stacks, and those whose golden file the change touches.
fn checked_stacks(selected: &SelectedStacks) -> Vec<Stack> {
    let changed = checked_files::changed_paths(selected);
    let mut stacks = selected.stacks.clone();
    let all = selected.workspace.layout.stacks.iter();
    let touched = all.filter(|stack| changed.contains(&golden::path_of(stack)));
    stacks.extend(touched.cloned());
    stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
    stacks.dedup_by(|a, b| a.folder == b.folder);
    stacks
}

/// Formats annotations as workflow commands for the runner of a forge, one per line.
pub fn workflow_commands(notes: &[Annotation]) -> String {
    let lines = forge::annotations(notes).into_iter();
    lines.map(|line| line + "\n").collect()
}

/// Returns the errors of the layout, and settings that match no stack.
fn structure(selected: &SelectedStacks, stacks: &[Stack], scope: CheckScope<'_>) -> Vec<Diagnostic> {
    let workspace = &selected.workspace;
    let concerns = |file: &RepoPath| {
        scope.files == FileScope::All
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
            Diagnostic::new(&problem.file, LintRule::Structure, &problem.message)
                .at(problem.line, problem.column)
        });
    let orphan = |file: &&RepoPath| {
        let folder = match file.file_name() {
            "kcl.yaml" => file.parent(),
            "settings.yaml" | "stdout.golden.yaml" => file
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
        let message = "belongs to no stack: there is no stack.yaml beside it";
        Diagnostic::new(file, LintRule::Structure, message).warning()
    });
    problems.chain(orphans).collect()
}

/// Returns the diagnostics of a stack that does not compile, each at its place.
fn diagnostics_of_failure(stack: &Stack, failure: &UserError) -> Vec<Diagnostic> {
    let describe = |place: Option<&Location>, message: &str| {
        let file = file_of(place).unwrap_or_else(|| stack.manifest.clone());
        Diagnostic::new(&file, LintRule::Compile, message)
            .at(
                place.and_then(|place| place.line),
                place.and_then(|place| place.column),
            )
            .first_hint(&failure.hints)
            .of_stack(&stack.id)
    };
    if failure.causes.is_empty() {
        let message = failure.message.strip_prefix(&format!("stack {}: ", stack.id));
        let message = message.unwrap_or(&failure.message);
        return vec![describe(failure.location.as_ref(), message)];
    }
    let causes = failure.causes.iter();
    causes
        .map(|cause| describe(cause.location.as_ref(), &cause.message))
        .collect()
}
