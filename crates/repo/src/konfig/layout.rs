//! [`Layout`]: the projects and stacks of one revision.

use std::collections::{BTreeSet, HashMap};

use super::{LayoutError, PackageKind};
use konverge_base::model::{
    RepoPath, StackId,
    stack::{SetupError, Stack},
};

/// A folder with a `project.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Folder of the project.
    pub folder: RepoPath,
    /// The name; the folder's name if `project.yaml` is invalid.
    pub name: String,
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    /// The names that earlier builds read in `project.yaml`, if they differ.
    pub earlier: Option<EarlierNames>,
}

/// The names of a project as earlier builds read them: without quotes, `1.10` was `1.1` and `no` was `false`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierNames {
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    /// The name.
    pub name: String,
}

/// Folders with the same names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// The identity that their names, or rules of `konverge.yaml`, give.
    pub identity: StackId,
    /// The folders that share one identity.
    pub folders: Vec<RepoPath>,
}

/// Every project and stack of a revision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Sorted by folder.
    pub stacks: Vec<Stack>,
    /// Sorted by folder.
    pub projects: Vec<Project>,
    /// The errors in single files, sorted by file.
    pub problems: Vec<SetupError>,
    /// True if the revision has a `kcl.mod`.
    pub has_module: bool,
    /// True if an entry of a stack is a glob, so that any file may become an entry.
    pub has_globs: bool,
    /// The identities that several stacks would have; the identity of each of these stacks is the path of its
    /// folder.
    pub clashes: Vec<Clash>,
    /// Folders with a `stack.yaml` that do not define stacks, sorted.
    pub left_out: Vec<RepoPath>,
    /// The left-out folders that are in a package of another module, with the folder of the package.
    pub in_packages: Vec<(RepoPath, RepoPath)>,
    /// Packages whose folders do not define stacks, sorted.
    pub packages: Vec<(RepoPath, PackageKind)>,
    /// Errors that hide stacks or their identities. While there are any, a missing identity does not mean
    /// that the stack was removed.
    pub unseen: Vec<SetupError>,
}

impl Layout {
    /// Checks that this is a KCL monorepo.
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

    /// Returns true if every stack and its identity are known.
    pub fn identities_certain(&self) -> bool {
        self.unseen.is_empty()
    }

    /// The stack with an identity.
    pub fn stack(&self, id: &StackId) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.id == *id)
    }

    /// The stacks that read outputs of others, by those.
    pub fn readers(&self) -> HashMap<&StackId, Vec<&Stack>> {
        let mut readers: HashMap<&StackId, Vec<&Stack>> = HashMap::new();
        for stack in &self.stacks {
            for writer in stack.reads.values().collect::<BTreeSet<_>>() {
                readers.entry(writer).or_default().push(stack);
            }
        }
        readers
    }

    /// The stack with an identity: the one in this folder if it has it, or else the first.
    pub fn stack_near(&self, folder: &RepoPath, id: &StackId) -> Option<&Stack> {
        let there = self.stack_in_folder(folder).filter(|stack| stack.id == *id);
        there.or_else(|| self.stack(id))
    }

    /// Returns true if a folder has a `stack.yaml` but does not define a stack.
    pub fn leaves_out(&self, folder: &RepoPath) -> bool {
        self.left_out.binary_search(folder).is_ok()
    }
}
