//! Checks the conventions that most projects of a repository follow: a `tenant`, a file `OWNERS`. Konfig's own checks
//! asked for both; a repository that has neither follows another convention.

use std::collections::BTreeSet;

use konverge_base::model::{
    RepoPath,
    lint::{Diagnostic, LintRule},
    stack::Stack,
};
use konverge_repo::konfig::Project;
use konverge_run::OpenRevision;

/// Returns one diagnostic for each convention that a project of these stacks does not follow.
pub(super) fn check(workspace: &OpenRevision, stacks: &[Stack]) -> Vec<Diagnostic> {
    let checked: BTreeSet<&RepoPath> = stacks.iter().map(|stack| &stack.project_folder).collect();
    let with_stacks: BTreeSet<&RepoPath> = workspace
        .layout
        .stacks
        .iter()
        .map(|stack| &stack.project_folder)
        .collect();
    let projects: Vec<&Project> = workspace
        .layout
        .projects
        .iter()
        .filter(|project| with_stacks.contains(&project.folder))
        .collect();
    let owners = |project: &Project| project.folder.child("OWNERS");
    let mut found = lacking(
        &projects,
        &checked,
        |project| project.tenant.is_some(),
        |project, count| {
            let message = format!("has no `tenant`; {count} have one");
            let file = project.folder.child("project.yaml");
            Diagnostic::new(&file, LintRule::Structure, &message)
                .hint("the tenant is a part of the identity of each stack of the project")
        },
    );
    found.extend(lacking(
        &projects,
        &checked,
        |project| workspace.source.files().contains_key(&owners(project)),
        |project, count| {
            let message = format!("does not exist; {count} have one");
            Diagnostic::new(&owners(project), LintRule::Structure, &message)
                .hint("name the owners of the project in this file, as the other projects do")
        },
    ));
    found
}

/// Returns the projects that lack something which more than half of all projects have.
fn lacking(
    projects: &[&Project],
    checked: &BTreeSet<&RepoPath>,
    has: impl Fn(&Project) -> bool,
    describe: impl Fn(&Project, &str) -> Diagnostic,
) -> Vec<Diagnostic> {
    let with = projects.iter().filter(|project| has(project)).count();
    // Without a majority there is no convention.
    if 2 * with <= projects.len() {
        return Vec::new();
    }
    let count = format!("{with} of {} projects", projects.len());
    let without = projects
        .iter()
        .filter(|project| checked.contains(&project.folder) && !has(project));
    without
        .map(|project| describe(project, &count).warning())
        .collect()
}
