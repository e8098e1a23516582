//! Finds files that a program imports both as single files and as part of their package. A file that is imported alone
//! does not see the names of its siblings. If one program has both kinds of import, the core (0.13.2) compiles or
//! rejects it unpredictably.

use std::collections::HashSet;

use super::{AffectedError, Analysis, resolve::ResolvedImport};
use konverge_base::model::{RepoPath, stack::Stack};

/// A file that is imported alone by a program that also imports its package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixedImport {
    /// The file with the import.
    pub by: RepoPath,
    /// The imported file.
    pub file: RepoPath,
    /// The package, which the program imports elsewhere.
    pub package: RepoPath,
}

impl Analysis {
    /// Returns the mixed imports of a stack's program.
    ///
    /// # Errors
    /// The stack does not belong to this revision.
    pub fn half_packages(&self, stack: &Stack) -> Result<Vec<MixedImport>, AffectedError> {
        let entries = &self.inputs[self.position(stack)?].entries;
        let nodes = &self.graph.nodes;
        let reached = self.graph.reachable(entries.iter().copied());
        let package = |id: &usize| match &nodes[*id].place {
            ResolvedImport::Package(folder) => Some(folder),
            _ => None,
        };
        let packages: HashSet<&RepoPath> = reached.iter().filter_map(package).collect();
        let mut found = Vec::new();
        for node in reached.iter().map(|id| &nodes[*id]) {
            for (to, by) in &node.edges {
                let ResolvedImport::File(file) = &nodes[*to].place else {
                    continue;
                };
                if let Some(package) = file.parent().filter(|folder| packages.contains(folder)) {
                    found.push(MixedImport {
                        by: node.files[*by].path.clone(),
                        file: file.clone(),
                        package,
                    });
                }
            }
        }
        Ok(found)
    }
}
