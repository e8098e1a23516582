//! The hints of `init` about lock files of packages.

use konverge_base::model::{package_lock::LOCK_FILE, stack::CompileSetup};
use konverge_repo::{git::Repository, konfig::Layout};
use konverge_run::package_locks::IGNORED;

/// Returns the hints about packages without a committed lock.
pub(super) fn hints(repository: &Repository, layout: &Layout) -> Vec<String> {
    let setups = layout
        .stacks
        .iter()
        .filter_map(|stack| stack.compile.as_ref().ok());
    let setups: Vec<_> = setups.filter(|setup| !setup.remote_packages.is_empty()).collect();
    let mut hints = Vec::new();
    let is_ignored = |setup: &&CompileSetup| {
        let root = setup.module_root.as_ref();
        root.is_some_and(|root| repository.ignores(&root.child(LOCK_FILE)))
    };
    if setups.iter().any(is_ignored) {
        hints.push(format!("{IGNORED}; it pins the packages of kcl.mod"));
    }
    let is_locked = |setup: &&&CompileSetup| {
        setup
            .remote_packages
            .iter()
            .all(|package| package.locked.is_pinned())
    };
    let unlocked = setups.len() - setups.iter().filter(is_locked).count();
    if unlocked > 0 {
        let stacks = match unlocked {
            1 => "1 stack uses".to_owned(),
            count => format!("{count} stacks use"),
        };
        hints.push(format!(
            "{stacks} packages that no kcl.mod.lock pins: run `konverge kcl lock` and commit the locks; until then each run looks the packages up, and a pull request from outside does not get them"
        ));
    }
    hints
}
