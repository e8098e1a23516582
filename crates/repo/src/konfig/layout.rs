//! [`Layout`]: the projects and stacks of one revision.

use std::collections::{BTreeSet, HashMap};

use super::{LayoutError, PackageKind};
use konverge_base::model::{
    RepoPath, StackId,
    stack::{SetupError, Stack},
};
use serde::{Deserialize, Serialize};

/// A folder with a `project.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Folder of the project.
    pub folder: RepoPath,
    /// The name; the folder's name if `project.yaml` is invalid.
    pub name: String,
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    /// The names that earlier versions of Konverge read from `project.yaml`, if they differ.
    pub earlier: Option<EarlierNames>,
}

/// The names of a project as earlier versions of Konverge read them: unquoted, `1.10` was `1.1` and `no` was `false`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierNames {
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    /// The name of the project, as an earlier version read it.
    pub name: String,
}

/// Folders that would have the same identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The identity that the names, or rules of `konverge.yaml`, give these folders.
    pub identity: StackId,
    /// The folders of the stacks that share the names.
    pub folders: Vec<RepoPath>,
}

/// The projects and stacks of a revision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Layout {
    /// The stacks, sorted by folder.
    pub stacks: Vec<Stack>,
    /// The projects, sorted by folder.
    pub projects: Vec<Project>,
    /// The errors in single files, sorted by file.
    pub problems: Vec<SetupError>,
    /// True if the revision has a `kcl.mod`.
    pub has_module: bool,
    /// True if an entry of a stack is a glob, so that any new file may become an entry.
    pub has_globs: bool,
    /// The identities that several stacks would have. Each of these stacks has the path of its folder as its identity
    /// instead.
    pub clashes: Vec<Clash>,
    /// The folders with a `stack.yaml` that do not define stacks, sorted.
    pub left_out: Vec<RepoPath>,
    /// The excluded folders that are in a package that another module depends on, with the folder of the package.
    pub in_packages: Vec<(RepoPath, RepoPath)>,
    /// The packages in which folders do not define stacks, sorted.
    pub packages: Vec<(RepoPath, PackageKind)>,
    /// Errors that hide stacks or their identities. If there are any, a missing identity does not prove
    /// that the stack was removed.
    pub unseen: Vec<SetupError>,
}

impl Layout {
    /// Checks that this is a KCL monorepo.
    ///
    /// # Errors
    /// The repository has no `kcl.mod`.
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

    /// Returns the stack with an identity.
    pub fn stack(&self, id: &StackId) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.id == *id)
    }

    /// Returns the stacks that read outputs, by the stack whose outputs they read.
    pub fn readers(&self) -> HashMap<&StackId, Vec<&Stack>> {
        let mut readers: HashMap<&StackId, Vec<&Stack>> = HashMap::new();
        for stack in &self.stacks {
            for writer in stack.reads.values().collect::<BTreeSet<_>>() {
                readers.entry(writer).or_default().push(stack);
            }
        }
        readers
    }

    /// Returns the stack with an identity: preferably the one in this folder, or else the first one.
    pub fn stack_near(&self, folder: &RepoPath, id: &StackId) -> Option<&Stack> {
        let there = self.stack_in_folder(folder).filter(|stack| stack.id == *id);
        there.or_else(|| self.stack(id))
    }

    /// Returns true if a folder has a `stack.yaml` but does not define a stack.
    pub fn leaves_out(&self, folder: &RepoPath) -> bool {
        self.left_out.binary_search(folder).is_ok()
    }
}
