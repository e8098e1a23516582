//! What `init` says about the locks of packages.

use std::collections::BTreeSet;

use crate::{
    git::Repository,
    konfig::Layout,
    model::{RepoPath, package_lock::LOCK_FILE, stack::CompileSetup},
};

/// What to do so that every package is locked, and the locks are committed.
pub(super) fn hints(repository: &Repository, layout: &Layout) -> Vec<String> {
    let setups = layout
        .stacks
        .iter()
        .filter_map(|stack| stack.compile.as_ref().ok());
    let setups: Vec<_> = setups.filter(|setup| !setup.remote_packages.is_empty()).collect();
    let file = |setup: &CompileSetup| setup.module_root.clone().unwrap_or_default().child(LOCK_FILE);
    let locks: BTreeSet<RepoPath> = setups.iter().map(|setup| file(setup)).collect();
    let mut hints = Vec::new();
    if let Some(ignored) = locks.iter().find(|lock| repository.ignores(lock)) {
        hints.push(format!(
            "git ignores kcl.mod.lock, which pins packages: remove the rule that `git check-ignore -v {ignored}` names, and commit the locks"
        ));
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
