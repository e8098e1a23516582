//! Finds files that an entry of a program may read because another entry has the import.

use super::{Analysis, data_files};
use konverge_base::model::RepoPath;

impl Analysis {
    /// Returns the files that an entry of a stack may read because another entry of the same program imports a module:
    /// all entries form one package and share their imports. Each file is returned with the entry that reads it.
    pub(super) fn shared_reads(&self, at: usize) -> Vec<(RepoPath, RepoPath)> {
        let entries = &self.inputs[at].entries;
        let files = || entries.iter().flat_map(|entry| &self.graph.nodes[*entry].files);
        let door = files().map(|file| file.reader_import).max().unwrap_or_default();
        files()
            .filter(|file| file.reader_import < door)
            .flat_map(|file| {
                let readable = data_files::readable(&self.tree, &self.rules, &file.path, door, &file.reads);
                readable.into_iter().map(|path| (path, file.path.clone()))
            })
            .collect()
    }
}
