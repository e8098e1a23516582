//! Resolves the entries of the settings as the core does (`parser/src/entry.rs
//! get_compile_entries_from_paths`).

use std::collections::BTreeSet;

use super::{
    FileTreeView, outside_paths, path_glob,
    path_variables::{package_folder, variable},
};
use konverge_base::model::{
    RepoPath,
    stack::{CompileSetup, Entry, EntryPackage, SetupError},
};

/// The characters that make an entry a glob pattern.
const GLOB: [char; 3] = ['*', '?', '['];

/// An entry as written in a settings file.
pub(super) struct EntryText {
    pub(super) file: RepoPath,
    pub(super) text: String,
}

impl EntryText {
    pub(super) fn is_glob(&self) -> bool {
        self.text.contains(GLOB)
    }

    /// Returns the folder that the text is relative to.
    fn base(&self) -> RepoPath {
        self.file.parent().unwrap_or_default()
    }
}

/// Resolves the entries of a stack. Entries that begin with `${KCL_MOD}` are resolved last, because the others
/// determine the root that `${KCL_MOD}` stands for.
pub(super) fn resolve(
    tree: &FileTreeView,
    setup: &CompileSetup,
    all: &[EntryText],
) -> Result<Vec<Entry>, SetupError> {
    let failed = |written: &EntryText, message| SetupError::new(written.file.clone(), message);
    let mut resolved = Vec::new();
    for written in all {
        let entries = match rooted(written) {
            Some(_) => Vec::new(),
            None => plain_or_of_package(tree, setup, written).map_err(|message| failed(written, message))?,
        };
        resolved.push(entries);
    }
    let root = main_root(tree, setup, resolved.iter().flatten());
    for (entries, written) in resolved.iter_mut().zip(all) {
        let Some(inside) = rooted(written) else {
            continue;
        };
        let start = root.clone().unwrap_or_else(|| {
            tree.module_root(&written.base())
                .unwrap_or_else(|| setup.work_dir.clone())
        });
        *entries = found(tree, written, &start, inside, &EntryPackage::Main)
            .map_err(|message| failed(written, message))?;
        // If all entries begin with `${KCL_MOD}`, the core finds no root, so the path itself must lead to it.
        let Some(root) = &root else {
            continue;
        };
        for entry in entries
            .iter_mut()
            .filter(|entry| root_of(tree, &entry.path) != *root)
        {
            entry.package = EntryPackage::Root(root.clone());
        }
    }
    Ok(resolved.into_iter().flatten().collect())
}

/// Returns the text after `${KCL_MOD}`, if the entry starts with it.
fn rooted(written: &EntryText) -> Option<&str> {
    match variable(&written.text) {
        Some(("KCL_MOD", inside)) => Some(inside),
        _ => None,
    }
}

fn plain_or_of_package(
    tree: &FileTreeView,
    setup: &CompileSetup,
    written: &EntryText,
) -> Result<Vec<Entry>, String> {
    match variable(&written.text) {
        None => found(tree, written, &written.base(), &written.text, &EntryPackage::Main),
        Some(("PWD", inside)) => found(tree, written, &written.base(), inside, &EntryPackage::Main),
        Some((other, inside)) => {
            let (name, folder) = package_folder(setup, other, &written.text)?;
            found(tree, written, &folder, inside, &EntryPackage::Dependency(name))
        }
    }
}

/// Returns the root that the core uses for `${KCL_MOD}`: that of the other entries, or that of the stack's
/// folder if the other entries have several roots. `None` if there are no other entries.
fn main_root<'a>(
    tree: &FileTreeView,
    setup: &CompileSetup,
    entries: impl Iterator<Item = &'a Entry>,
) -> Option<RepoPath> {
    let mut roots: BTreeSet<RepoPath> = entries
        .filter(|entry| entry.package == EntryPackage::Main)
        .map(|entry| root_of(tree, &entry.path))
        .collect();
    match roots.len() {
        0 | 1 => roots.pop_first(),
        _ => Some(root_of(tree, &setup.work_dir)),
    }
}

/// Returns the package root of a file or folder.
fn root_of(tree: &FileTreeView, path: &RepoPath) -> RepoPath {
    let folder = if tree.is_file(path) {
        path.parent().unwrap_or_default()
    } else {
        path.clone()
    };
    tree.module_root(&folder).unwrap_or(folder)
}

/// Returns the files or folders that a text names, relative to a folder. For a glob, its matches in order.
fn found(
    tree: &FileTreeView,
    written: &EntryText,
    start: &RepoPath,
    inside: &str,
    package: &EntryPackage,
) -> Result<Vec<Entry>, String> {
    let text = &written.text;
    let path = start
        .join(inside)
        .ok_or_else(|| outside_paths::describe_refusal(tree, start, inside))?;
    let entry = |path: RepoPath| Entry {
        path,
        package: package.clone(),
    };
    if tree.is_file(&path) || tree.is_folder(&path) {
        return Ok(vec![entry(path)]);
    }
    if !written.is_glob() {
        return Err(format!("there is no `{path}`, which the entry `{text}` names"));
    }
    let glob = path_glob(path.as_str())
        .map_err(|error| format!("the entry `{text}` is not a glob: {}", error.kind()))?
        .compile_matcher();
    let fixed = path.as_str().find(GLOB).unwrap_or_default();
    let above = RepoPath::normalize(&path.as_str()[..path.as_str()[..fixed].rfind('/').unwrap_or(0)]);
    let matches: Vec<_> = tree
        .files_below(&above.unwrap_or_default())
        .map(|(path, _)| path)
        .filter(|path| glob.is_match(path.as_str()) && tree.is_file(path))
        .map(|path| entry(path.clone()))
        .collect();
    if matches.is_empty() {
        Err(format!("no file matches the entry `{text}`"))
    } else {
        Ok(matches)
    }
}
