//! Finds stacks without a `stack.yaml`: the folders with a `kcl.mod` that match `include` in `konverge.yaml`, as in
//! kcl-lang's Konfig.

use std::collections::HashSet;

use super::{FileTreeView, PackageKind, Project, path_glob};
use konverge_base::model::RepoPath;

/// The name of a stack whose project is the same folder.
const DEFAULT_NAME: &str = "default";

/// The text for the root of the repository in `include`. No other glob matches the root, because such a glob would also
/// match everything below.
const ROOT: &str = ".";

/// The name of the project at the root, for which there is no folder name. The name of the package is not used: it may
/// change, and an identity must not.
const ROOT_PROJECT: &str = "root";

/// The folders that are stacks because of `include`, and the projects that exist only because of these stacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PackageStacks {
    /// The folders of the stacks, sorted.
    pub(super) folders: Vec<RepoPath>,
    /// The folders of the projects, which have no `project.yaml`.
    pub(super) projects: HashSet<RepoPath>,
}

impl PackageStacks {
    /// Finds these stacks among the folders with a `kcl.mod`. `projects` are the folders with a `project.yaml`.
    pub(super) fn find(
        tree: &FileTreeView,
        include: &[String],
        packages: &[(RepoPath, PackageKind)],
        projects: &[RepoPath],
    ) -> Self {
        let globs: Vec<_> = include.iter().filter_map(|glob| matcher(glob)).collect();
        let takes_root = include.iter().any(|glob| glob.trim_end_matches('/') == ROOT);
        if globs.is_empty() && !takes_root {
            return Self::default();
        }
        let is_included = |folder: &RepoPath| {
            if folder.is_root() {
                takes_root
            } else {
                globs.iter().any(|glob| glob.is_match(folder.as_str()))
            }
        };
        let mut folders: Vec<RepoPath> = tree
            .module_folders()
            .filter(|folder| is_included(folder))
            .filter(|folder| !tree.is_file(&folder.child("stack.yaml")))
            .filter(|folder| !packages.iter().any(|(package, _)| folder.is_within(package)))
            .cloned()
            .collect();
        folders.sort();
        let has_project = |folder: &&RepoPath| folder.ancestors().any(|above| projects.contains(&above));
        let without = folders.iter().filter(|folder| !has_project(folder));
        Self {
            projects: without.map(project_folder).collect(),
            folders,
        }
    }

    /// Returns the project in a folder, if it has no `project.yaml`.
    pub(super) fn project(&self, folder: &RepoPath) -> Option<Project> {
        self.projects.contains(folder).then(|| Project {
            name: if folder.is_root() {
                ROOT_PROJECT.to_owned()
            } else {
                folder.file_name().to_owned()
            },
            folder: folder.clone(),
            tenant: None,
            earlier: None,
        })
    }
}

/// Returns the name of a stack in a folder that has no `stack.yaml`.
pub(super) fn name<'a>(folder: &'a RepoPath, project: &RepoPath) -> &'a str {
    if folder == project {
        DEFAULT_NAME
    } else {
        folder.file_name()
    }
}

/// Returns the parent folder, which is the project; for a folder directly below the root, the folder itself.
fn project_folder(folder: &RepoPath) -> RepoPath {
    let above = folder.parent().filter(|above| !above.is_root());
    above.unwrap_or_else(|| folder.clone())
}

fn matcher(glob: &str) -> Option<globset::GlobMatcher> {
    Some(path_glob(glob.trim_end_matches('/')).ok()?.compile_matcher())
}
