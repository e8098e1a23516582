//! [`Layout`]: the projects and stacks of one revision.

use std::sync::Arc;

use super::{Clash, FileTreeView, LayoutError, LayoutReader, LayoutRules, PackageKind};
use crate::model::{
    RepoPath, StackId,
    file_source::Source,
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
    /// Identities that several stacks would have; each of these has its folder's path.
    pub clashes: Vec<Clash>,
    /// Folders with a `stack.yaml` that make no stacks, sorted.
    pub left_out: Vec<RepoPath>,
    /// Those of them that lie in a package which another module depends on, with its folder.
    pub in_packages: Vec<(RepoPath, RepoPath)>,
    /// Packages whose folders make no stacks, sorted.
    pub packages: Vec<(RepoPath, PackageKind)>,
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
    pub fn read(source: &Arc<dyn Source>, rules: impl Into<LayoutRules>) -> Result<Self, LayoutError> {
        LayoutReader::new().layout(&FileTreeView::new(Arc::clone(source)), &rules.into())
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

    /// Whether a folder holds a `stack.yaml` that makes no stack.
    pub fn leaves_out(&self, folder: &RepoPath) -> bool {
        self.left_out.binary_search(folder).is_ok()
    }
}
