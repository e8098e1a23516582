//! `[dependencies]` of `kcl.mod`: dependencies in the repository by folder, the others by what pins them.

use std::collections::{HashSet, VecDeque};

use super::{
    FileTreeView,
    kcl_mod::{self, KclMod},
    outside_paths,
    parsed_files::ParsedFiles,
};
use crate::model::{
    RepoPath,
    digest::canonical_json,
    file_source::SourceError,
    stack::{CompileSetup, RemotePackage, SetupError},
};

/// Adds the dependencies of the stack's module, and their dependencies. The nearest declaration of a name
/// wins.
pub(super) fn add(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    setup: &mut CompileSetup,
) -> Result<Result<(), SetupError>, SourceError> {
    let Some(root) = setup.module_root.clone() else {
        return Ok(Ok(()));
    };
    let mut seen = HashSet::from([root.clone()]);
    let mut queue = VecDeque::from([root.clone()]);
    while let Some(folder) = queue.pop_front() {
        let file = folder.child("kcl.mod");
        let module = match reader.module(tree, &file)? {
            Some(Ok(module)) => module,
            Some(Err(message)) => return Ok(Err(SetupError::new(file, message))),
            None => continue,
        };
        if let Err(error) = add_of((reader, tree), &root, &folder, &module, setup, |package| {
            if seen.insert(package.clone()) {
                queue.push_back(package);
            }
        })? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

fn add_of(
    (reader, tree): (&ParsedFiles, &FileTreeView),
    root: &RepoPath,
    folder: &RepoPath,
    module: &KclMod,
    setup: &mut CompileSetup,
    mut found: impl FnMut(RepoPath),
) -> Result<Result<(), SetupError>, SourceError> {
    let mut lock = None;
    for (name, dependency) in &module.dependencies {
        let known = setup.packages.iter().any(|(known, _)| known == name)
            || setup.remote_packages.iter().any(|known| known.name == *name);
        if known {
            continue;
        }
        if let Some(path) = &dependency.path {
            let package = match folder.join(path) {
                Some(package) => package,
                None => match outside(reader, tree, folder, name, path)? {
                    Ok(package) => package,
                    Err(message) => return Ok(Err(SetupError::new(folder.child("kcl.mod"), message))),
                },
            };
            setup.packages.push((name.clone(), package.clone()));
            found(package);
            continue;
        }
        let vendored = dependency.store_names.iter().find_map(|stored| {
            let vendor = root.join("vendor")?.join(stored)?;
            [vendor.join(stored)?, vendor]
                .into_iter()
                .find(|package| tree.is_file(&package.child("kcl.mod")))
        });
        if let Some(package) = vendored {
            setup.packages.push((name.clone(), package.clone()));
            found(package);
            continue;
        }
        if lock.is_none() {
            lock = Some(tree.read(&folder.child("kcl.mod.lock"))?);
        }
        let lock = lock.as_ref().and_then(Option::as_ref);
        setup.remote_packages.push(RemotePackage {
            name: name.clone(),
            requirement: canonical_json(&dependency.entry),
            checksum: lock.and_then(|lock| kcl_mod::locked_checksum(lock, name)),
        });
    }
    Ok(Ok(()))
}

/// A dependency whose path leads out of the repository: the repository's own package, if it is called by the name of the
/// checkout's folder, else why it is refused.
fn outside(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    folder: &RepoPath,
    name: &str,
    path: &str,
) -> Result<Result<RepoPath, String>, SourceError> {
    let module = reader.module(tree, &RepoPath::root().child("kcl.mod"))?;
    let module = module.and_then(Result::ok);
    let root = module.as_ref().and_then(|module| module.name.as_deref());
    let own = root.filter(|root| root.replace('-', "_") == name);
    let package = outside_paths::by_checkout_name(folder, path, own).filter(RepoPath::is_root);
    Ok(package.ok_or_else(|| outside_paths::dependency(tree, folder, name, path, root)))
}
