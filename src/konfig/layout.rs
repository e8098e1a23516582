//! [`Layout`]: the projects and stacks of one revision.

use std::{collections::BTreeMap, sync::Arc};

use super::{LayoutError, Reader, SettingsOrder, Tree};
use crate::model::{
    RepoPath, StackId,
    source::Source,
    stack::{SetupError, Stack},
};

/// A folder with a `project.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Where it lies.
    pub folder: RepoPath,
    /// Its name; the folder's name if `project.yaml` is broken.
    pub name: String,
    /// Its tenant, if it says one.
    pub tenant: Option<String>,
}

/// Every project and stack of a revision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Sorted by folder.
    pub stacks: Vec<Stack>,
    /// Sorted by folder.
    pub projects: Vec<Project>,
    /// What is wrong with single files, sorted by file.
    pub problems: Vec<SetupError>,
    /// Whether the revision has a `kcl.mod`.
    pub has_module: bool,
    /// Whether an entry of a stack is a glob, so that any file may become one.
    pub has_globs: bool,
    /// What keeps stacks or their identities from being seen: while there is any of it, an identity that is missing here
    /// must not be taken for removed.
    pub unseen: Vec<SetupError>,
}

impl Layout {
    /// Reads the layout of a revision.
    ///
    /// # Errors
    /// A file is not in the object database. What is wrong *in* files never is an error: see [`Layout::problems`] and
    /// [`Stack::compile`].
    pub fn read(source: &Arc<dyn Source>, order: SettingsOrder) -> Result<Self, LayoutError> {
        Reader::new().layout(&Tree::new(Arc::clone(source)), order)
    }

    /// That this is a KCL monorepo at all.
    ///
    /// # Errors
    /// It has no `kcl.mod`.
    pub fn require_module(&self) -> Result<(), LayoutError> {
        if self.has_module {
            Ok(())
        } else {
            Err(LayoutError::NoModule)
        }
    }

    /// Whether every stack is seen, and its identity is its own.
    pub fn identities_certain(&self) -> bool {
        self.unseen.is_empty()
    }

    /// The stack of an identity.
    pub fn stack(&self, id: &StackId) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.id == *id)
    }

    /// The stacks that a command line's word means: an identity, a stack's folder, or a folder above stacks.
    pub fn select(&self, word: &str) -> Vec<&Stack> {
        if let Some(found) = self.stacks.iter().find(|stack| stack.id.as_str() == word) {
            return vec![found];
        }
        let Some(folder) = RepoPath::normalise(word) else {
            return Vec::new();
        };
        self.stacks
            .iter()
            .filter(|stack| stack.folder.is_within(&folder))
            .collect()
    }

    /// Breaks stacks that claim one identity: their states would overwrite each other.
    pub(super) fn check_identities(&mut self) {
        let mut claims: BTreeMap<StackId, Vec<usize>> = BTreeMap::new();
        for (index, stack) in self.stacks.iter().enumerate() {
            claims.entry(stack.id.clone()).or_default().push(index);
        }
        for (id, indices) in claims.into_iter().filter(|(_, indices)| indices.len() > 1) {
            let folders: Vec<_> = indices
                .iter()
                .map(|i| self.stacks[*i].folder.to_string())
                .collect();
            for index in indices {
                let stack = &mut self.stacks[index];
                let error = SetupError {
                    file: stack.folder.child("stack.yaml"),
                    line: None,
                    column: None,
                    message: format!(
                        "the identity `{id}` is claimed by {} folders: {}; give each stack of a project its own name",
                        folders.len(),
                        folders.join(", ")
                    ),
                };
                stack.compile = Err(error.clone());
                self.problems.push(error);
            }
        }
        self.problems
            .sort_by(|a, b| (&a.file, &a.message).cmp(&(&b.file, &b.message)));
    }
}
