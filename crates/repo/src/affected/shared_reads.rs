//! Files that the entries of one program may read by an import of another entry.

use super::{
    core_compat::CoreRules,
    data_files,
    graph::{ImportGraph, NodeId},
};
use crate::konfig::FileTreeView;
use konverge_base::model::RepoPath;

/// The files that an entry may read because another entry of the same program imports a module: all entries form one
/// package and share their imports. Each file comes with the entry that reads it.
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
