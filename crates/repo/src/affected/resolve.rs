//! Resolves an import to the files that it loads, by KCL's rules (`parser/src/lib.rs get_pkg_kfile_list`,
//! `config/src/vfs.rs fix_import_path`).

use std::sync::Arc;

use super::core_compat::CoreRules;
use crate::konfig::FileTreeView;
use konverge_base::model::RepoPath;
use serde::{Deserialize, Serialize};

/// The roots in which the imports of a file are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ImportContext {
    /// The package root for absolute imports.
    pub(super) root: RepoPath,
    /// The external packages of the whole program, by name.
    pub(super) packages: Arc<Vec<(String, RepoPath)>>,
}

/// The target of an import: real paths, with links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum ResolvedImport {
    /// A file that is an entry, or that is imported as a module.
    File(RepoPath),
    /// An imported folder: its `.k` files, except tests and files with a leading `_`.
    Package(RepoPath),
    /// A folder that is an entry. Files with a leading `_` are included.
    EntryFolder(RepoPath),
}

/// The result of resolving one import.
#[derive(Debug, Default)]
pub(super) struct Resolution {
    /// The loaded targets, each with the context for its own imports (`None`: that of the importing file).
    pub(super) loads: Vec<(Option<ImportContext>, ResolvedImport)>,
    /// The symbolic links on the path.
    pub(super) links: Vec<RepoPath>,
    /// True if nothing was found. Adding the file would change that.
    pub(super) missing: bool,
}

/// Resolves an import of a file in `folder` (a real path).
pub(super) fn resolve(
    tree: &FileTreeView,
    rules: &CoreRules,
    context: &ImportContext,
    folder: &RepoPath,
    dots: u32,
    path: &str,
) -> Resolution {
    let mut resolution = Resolution::default();
    let relative = path.replace('.', "/");
    if dots > 0 {
        let start = (1..dots).try_fold(folder.clone(), |at, _| {
            if at == context.root { None } else { at.parent() }
        });
        if let Some(start) = start.filter(|start| start.is_within(&context.root)) {
            resolve_path(tree, &start, &relative, None, &mut resolution);
        }
    } else {
        let first = path.split('.').next().unwrap_or_default();
        if rules.is_system(path) || first == "kcl_plugin" {
            return resolution;
        }
        resolve_path(tree, &context.root, &relative, None, &mut resolution);
        if let Some((_, package)) = context.packages.iter().find(|(name, _)| name == first) {
            let rest = relative
                .strip_prefix(first)
                .unwrap_or_default()
                .trim_start_matches('/');
            let inside = ImportContext {
                root: package.clone(),
                packages: Arc::clone(&context.packages),
            };
            resolve_path(tree, package, rest, Some(inside), &mut resolution);
        }
    }
    resolution.missing = resolution.loads.is_empty();
    resolution
}

/// Resolves a path. A folder takes precedence over a file of the same name, even without any KCL files.
fn resolve_path(
    tree: &FileTreeView,
    root: &RepoPath,
    relative: &str,
    context: Option<ImportContext>,
    resolution: &mut Resolution,
) {
    let Some(candidate) = root.join(relative) else {
        return;
    };
    if tree.is_folder(&candidate) {
        if let Some(real) = tree.resolve(&candidate) {
            resolution.links.extend(real.links);
            resolution
                .loads
                .push((context, ResolvedImport::Package(real.path)));
        }
        return;
    }
    let Some(file) = root
        .join(&format!("{relative}.k"))
        .filter(|_| !relative.is_empty())
    else {
        return;
    };
    if let Some((real, _)) = tree.file(&file) {
        resolution.links.extend(
            tree.resolve(&file)
                .map(|resolved| resolved.links)
                .unwrap_or_default(),
        );
        resolution.loads.push((context, ResolvedImport::File(real)));
    }
}
