//! The `kcl lock` use case: pins the packages of stacks in their `kcl.mod.lock`.

use std::collections::{BTreeMap, HashSet};

use super::selected_stacks;
use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        package_lock::{LOCK_FILE, PackageLock},
        stack::CompileSetup,
    },
};
use konverge_kcl::{LockUpdate, PackageFetcher, PathEntry};
use konverge_repo::{git::Repository, konfig::path_packages};
use konverge_run::{OpenRequest, OpenRevision, RunContext, Selection, compiler::Compilers, package_locks};

/// One `kcl.mod.lock`.
pub struct LockReport {
    /// The lock file.
    pub file: RepoPath,
    /// The packages with new entries, each with the commit or checksum that was found.
    pub changed: Vec<(String, String)>,
    /// The number of packages whose entries did not change.
    pub unchanged: usize,
    /// Hint for a file that git ignores.
    pub hint: Option<String>,
}

/// Locks the packages of the selected stacks, and replaces the entries of the packages in `looked_up`. Returns a report
/// for each lock, and the failures.
///
/// # Errors
/// The repository, its configuration or a name is wrong.
pub async fn run(
    run: &RunContext,
    selection: Selection,
    looked_up: &[String],
) -> Result<(Vec<LockReport>, Vec<UserError>), UserError> {
    let open = OpenRequest {
        selection,
        ..OpenRequest::default()
    };
    let selected = selected_stacks::open(run, &open).await?;
    let repository = Repository::discover(&run.dir)?;
    let (mut modules, mut failures) = (BTreeMap::new(), Vec::new());
    for stack in &selected.stacks {
        match &stack.compile {
            Ok(setup) if setup.remote_packages.is_empty() => {}
            Ok(setup) => {
                modules
                    .entry(setup.module_root.clone().unwrap_or_default())
                    .or_insert((stack, setup));
            }
            Err(error) => {
                failures.push(UserError::from(error.clone()).context(format!("stack {}", stack.id)))
            }
        }
    }
    let (mut reports, mut renewed) = (Vec::new(), HashSet::new());
    if !modules.is_empty() {
        let compilers = Compilers::new(run, &selected.workspace.config);
        let fetcher = &compilers.for_revision(&selected.workspace).fetcher().await?;
        for (root, (stack, setup)) in &modules {
            run.check_interrupted()?;
            let locked = lock_module(
                run,
                &repository,
                &selected.workspace,
                fetcher,
                root,
                setup,
                looked_up,
            );
            match locked.await {
                Ok(report) => {
                    // Names in kcl.mod and in `--update` may differ in `-` and `_`.
                    let names = report.changed.iter().map(|(name, _)| name.replace('-', "_"));
                    renewed.extend(names);
                    reports.push(report);
                }
                Err(failure) => failures.push(failure.context(format!("stack {}", stack.id))),
            }
        }
    }
    // A name in `--update` that no package has is probably misspelled.
    let unknown = looked_up
        .iter()
        .find(|name| !renewed.contains(&name.replace('-', "_")));
    if let Some(name) = unknown.filter(|_| failures.is_empty()) {
        let what = format!("no package `{}` is fetched for these stacks", name.escape_debug());
        failures.push(
            UserError::new(ErrorKind::Usage, what)
                .hint("name the package as `[dependencies]` of kcl.mod does"),
        );
    }
    Ok((reports, failures))
}

async fn lock_module(
    run: &RunContext,
    repository: &Repository,
    workspace: &OpenRevision,
    fetcher: &PackageFetcher,
    root: &RepoPath,
    setup: &CompileSetup,
    renewed: &[String],
) -> Result<LockReport, UserError> {
    let file = root.child(LOCK_FILE);
    let refused = |error: std::io::Error| {
        UserError::from_error(ErrorKind::Layout, error).at(file.to_string(), None, None)
    };
    // Read from the disk: a lock that git ignores is in no revision.
    let content = checkout::read(repository.root(), file.as_str().as_ref()).map_err(refused)?;
    let text = String::from_utf8(content.unwrap_or_default())
        .map_err(|error| package_locks::broken(&file, error.utf8_error().into()))?;
    let own = PackageLock::parse(text.as_bytes()).map_err(|why| package_locks::broken(&file, why))?;
    let mut wanted = setup.remote_packages.clone();
    for package in &mut wanted {
        if let Some(locked) = own.find(&package.name).filter(|locked| locked.is_pinned()) {
            package.locked = locked;
        }
    }
    let mut lock = own;
    lock.add_missing(package_locks::read(workspace, setup)?);
    let by_path = path_packages(workspace.analysis.tree(), root)?;
    let by_path: Vec<_> = by_path
        .into_iter()
        .map(|package| PathEntry {
            declared: package.declared,
            name: package.name,
            version: package.version,
        })
        .collect();
    let update = fetcher.lock(&wanted, &lock, &text, renewed, &by_path).await?;
    let LockUpdate {
        text: updated,
        changed,
        unchanged,
    } = update;
    if updated != text {
        let path = file.as_str().as_ref();
        checkout::write(repository.root(), path, updated.as_bytes(), Existing::Replace).map_err(refused)?;
    }
    Ok(LockReport {
        hint: package_locks::ignored_hint(run, setup),
        file,
        changed,
        unchanged,
    })
}
