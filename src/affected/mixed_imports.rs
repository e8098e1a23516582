//! Files that a program imports by themselves and with their package. Imported by itself a file does not see the names of
//! its siblings; with both in a program, the core (0.13.2) compiles or refuses it as it happens.

use std::collections::HashSet;

use super::{AffectedError, Analysis, resolve::ImportTarget};
use crate::model::{RepoPath, stack::Stack};

/// A file that is imported by itself in a program that imports its package too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixedImport {
    /// Which file imports it.
    pub by: RepoPath,
    /// What it imports.
    pub file: RepoPath,
    /// The package, imported somewhere in the program.
    pub package: RepoPath,
}

impl Analysis {
    /// Those of a stack's program.
    ///
    /// # Errors
    /// The stack is not of this revision.
    pub fn half_packages(&self, stack: &Stack) -> Result<Vec<MixedImport>, AffectedError> {
        let entries = &self.inputs[self.position(stack)?].entries;
        let nodes = &self.graph.nodes;
        let reached = self.graph.reachable(entries.iter().copied());
        let package = |id: &usize| match &nodes[*id].place {
            ImportTarget::Package(folder) => Some(folder),
            _ => None,
        };
        let packages: HashSet<&RepoPath> = reached.iter().filter_map(package).collect();
        let mut found = Vec::new();
        for node in reached.iter().map(|id| &nodes[*id]) {
            for (to, by) in &node.edges {
                let ImportTarget::File(file) = &nodes[*to].place else {
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
