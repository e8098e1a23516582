//! Files that a program imports both by themselves and with their package. A file that is imported by itself
//! does not see the names of its siblings. With both kinds in one program, the core (0.13.2) compiles or
//! rejects it unpredictably.

use std::collections::HashSet;

use super::{AffectedError, Analysis, resolve::ResolvedImport};
use konverge_base::model::{RepoPath, stack::Stack};

/// A file that is imported by itself in a program that also imports its package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixedImport {
    /// The importing file.
    pub by: RepoPath,
    /// The imported file.
    pub file: RepoPath,
    /// The package, imported somewhere in the program.
    pub package: RepoPath,
}

impl Analysis {
    /// The mixed imports of a stack's program.
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
