//! The locks of packages: what they say about a stack, and what to do about a package that they do not pin.

use super::{OpenRevision, RunContext};
use crate::{
    error::{ErrorKind, UserError},
    git::Repository,
    kcl::KclError,
    model::{
        RepoPath,
        package_lock::{LOCK_FILE, LockPlace, PackageLock},
        stack::{CompileSetup, Stack},
    },
};

/// What is locked for a stack: by the lock of its module, which holds for everything below it, and for what that one
/// does not pin by those of the packages in the repository.
pub(super) fn read(workspace: &OpenRevision, setup: &CompileSetup) -> Result<PackageLock, UserError> {
    let mut all = PackageLock::default();
    if setup.remote_packages.is_empty() {
        return Ok(all);
    }
    let packages = setup.packages.iter().map(|(_, folder)| folder);
    for folder in setup.module_root.iter().chain(packages) {
        let file = folder.child(LOCK_FILE);
        let content = workspace.analysis.tree().read(&file);
        let content = content.map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?;
        let lock = PackageLock::parse(content.as_deref().unwrap_or_default());
        all.add_missing(lock.map_err(|why| broken(&file, why))?);
    }
    Ok(all)
}

/// A lock that cannot be read.
pub(super) fn broken(file: &RepoPath, why: String) -> UserError {
    UserError::new(ErrorKind::Layout, format!("it cannot be read: {why}"))
        .at(file.to_string(), None, None)
        .hint("correct the file, or delete it and run `konverge kcl lock`")
}

/// Where the packages of a stack are locked.
pub(super) fn place(stack: &Stack, setup: &CompileSetup) -> LockPlace {
    let root = setup.module_root.clone().unwrap_or_default();
    LockPlace {
        stack: match stack.folder.is_root() {
            true => stack.id.to_string(),
            false => stack.folder.to_string(),
        },
        file: root.child(LOCK_FILE).to_string(),
    }
}

/// The error of a package, with what git does to the lock.
pub(super) fn explain(run: &RunContext, error: KclError) -> UserError {
    let place = match &error {
        KclError::NotLocked { place, .. } | KclError::LockDiffers { place, .. } => Some(place.clone()),
        _ => None,
    };
    let mut failure = UserError::from(error);
    if let Some(hint) = place.and_then(|place| ignored_hint(run, &place.file)) {
        // After the command that writes the file.
        failure.hints.insert(failure.hints.len().min(1), hint);
    }
    failure
}

/// The lines below the first warning about a package that is not locked.
pub(super) fn hints(run: &RunContext, place: &LockPlace) -> String {
    let LockPlace { stack, file } = place;
    let lock = format!(
        "\n  hint: `konverge kcl lock {stack}` locks it, and `konverge kcl lock` those of every stack; commit `{file}`"
    );
    match ignored_hint(run, file) {
        Some(hint) => format!("{lock}\n  hint: {hint}"),
        None => lock,
    }
}

/// What to do about a lock that git ignores.
pub(super) fn ignored_hint(run: &RunContext, file: &str) -> Option<String> {
    let repository = Repository::discover(&run.dir).ok()?;
    let path = RepoPath::normalize(file)?;
    repository.ignores(&path).then(|| {
        format!(
            "git ignores `{file}`: remove the rule that `git check-ignore -v {file}` names, or add the file by `git add -f {file}`"
        )
    })
}
