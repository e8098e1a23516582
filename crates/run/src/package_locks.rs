//! The lock files of packages: the pins of a stack, and the hints for an unpinned package.

use crate::{OpenRevision, RunContext, compile_error::CompileError};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        package_lock::{LOCK_FILE, PackageLock, PackageLockError},
        stack::CompileSetup,
    },
};
use konverge_kcl::KclError;
use konverge_repo::git::Repository;

/// The hint if git ignores `kcl.mod.lock`.
pub const IGNORED: &str = "git ignores kcl.mod.lock: remove its line from .gitignore, or add the files by `git add -f '*kcl.mod.lock'`";

/// Reads the lock files that apply to a stack. The lock file of its module comes first. The lock files of packages in
/// the repository only add packages that the first one does not pin.
pub fn read(workspace: &OpenRevision, setup: &CompileSetup) -> Result<PackageLock, UserError> {
    let mut all = PackageLock::default();
    if setup.remote_packages.is_empty() {
        return Ok(all);
    }
    let packages = setup.packages.iter().map(|(_, folder)| folder);
    for folder in setup.module_root.iter().chain(packages) {
        let file = folder.child(LOCK_FILE);
        let content = workspace.analysis.tree().read(&file)?;
        let lock = PackageLock::parse(content.as_deref().unwrap_or_default());
        all.add_missing(lock.map_err(|why| broken(&file, why))?);
    }
    Ok(all)
}

/// Returns the error for a lock file that cannot be read.
pub fn broken(file: &RepoPath, why: PackageLockError) -> UserError {
    UserError::new(ErrorKind::Layout, format!("it cannot be read: {why}"))
        .at(file.to_string(), None, None)
        .hint("correct the file, or delete it and run `konverge kcl lock`")
}

/// Converts the error of a package, and adds a hint if git ignores the lock file.
pub(crate) fn explain(run: &RunContext, setup: &CompileSetup, error: KclError) -> CompileError {
    let of_lock = matches!(error, KclError::NotLocked { .. } | KclError::LockDiffers { .. });
    let mut failure = CompileError::from(error);
    if let Some(hint) = ignored_hint(run, setup).filter(|_| of_lock) {
        // The first hint is the command that writes the lock file, so this hint comes second.
        let hints = &mut failure.error.hints;
        hints.insert(hints.len().min(1), hint);
    }
    failure
}

/// Returns the hints for the first warning about an unpinned package.
pub fn hints(run: &RunContext, setup: &CompileSetup) -> String {
    let lock = "\n  hint: run `konverge kcl lock` and commit kcl.mod.lock";
    match ignored_hint(run, setup) {
        Some(hint) => format!("{lock}\n  hint: {hint}"),
        None => lock.to_owned(),
    }
}

/// Returns a hint if git ignores the lock file of a stack. The text is the same for every stack, so that equal errors
/// are shown only once.
pub fn ignored_hint(run: &RunContext, setup: &CompileSetup) -> Option<String> {
    let file = setup.module_root.as_ref()?.child(LOCK_FILE);
    let repository = Repository::discover(&run.dir).ok()?;
    repository.ignores(&file).then(|| IGNORED.to_owned())
}
