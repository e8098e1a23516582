//! Finds files that an entry of a program may read because another entry has the import.

use super::{
    core_compat::CoreRules,
    data_files,
    graph::{ImportGraph, NodeId},
};
use crate::konfig::FileTreeView;
use konverge_base::model::RepoPath;

/// Returns the files that an entry may read because another entry of the same program imports a module: all entries
/// form one package and share their imports. Each file is returned with the entry that reads it.
pub(super) fn shared_reads(
    tree: &FileTreeView,
    rules: &CoreRules,
    graph: &ImportGraph,
    entries: &[NodeId],
) -> Vec<(RepoPath, RepoPath)> {
    let files = || entries.iter().flat_map(|entry| &graph.nodes[*entry].files);
    let door = files().map(|file| file.reader_import).max().unwrap_or_default();
    files()
        .filter(|file| file.reader_import < door)
        .flat_map(|file| {
            let readable = data_files::readable(tree, rules, &file.path, door, &file.reads);
            readable.into_iter().map(|path| (path, file.path.clone()))
        })
        .collect()
}
