//! Finds folders whose `project.yaml` and `stack.yaml` do not define stacks: folders in `exclude`, vendored packages,
//! and packages that other modules depend on.

use std::collections::BTreeMap;

use globset::GlobMatcher;

use super::{FileTreeView, parsed_files::ParsedFiles, path_glob};
use konverge_base::model::{RepoPath, file_source::SourceError};

/// The reason why the folders in a package do not define stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PackageKind {
    /// The package is in a `vendor` folder beside a `kcl.mod`.
    Vendored,
    /// Another module depends on the package by path. Projects below the package are examples; a project in the
    /// package's own folder is a real project.
    Dependency,
}

/// The excluded folders of a revision.
pub(super) struct Exclusion {
    /// The packages by folder.
    packages: BTreeMap<RepoPath, PackageKind>,
    globs: Vec<Glob>,
}

struct Glob {
    matcher: GlobMatcher,
    takes_in: bool,
}

impl Exclusion {
    pub(super) fn new(packages: &[(RepoPath, PackageKind)], globs: &[String]) -> Self {
        let glob = |text: &String| {
            let (pattern, takes_in) = match text.strip_prefix('!') {
                Some(pattern) => (pattern, true),
                None => (text.as_str(), false),
            };
            let glob = path_glob(pattern.trim_end_matches('/')).ok()?;
            Some(Glob {
                matcher: glob.compile_matcher(),
                takes_in,
            })
        };
        Self {
            packages: packages.iter().cloned().collect(),
            globs: globs.iter().filter_map(glob).collect(),
        }
    }

    /// Returns true if a folder with a `stack.yaml` does not define a stack. `project` is the folder of its
    /// project, if it has one.
    pub(super) fn leaves_out(&self, folder: &RepoPath, project: Option<&RepoPath>) -> bool {
        self.by_glob(folder)
            .unwrap_or_else(|| self.in_package(folder, project).is_some())
    }

    /// Returns the package that keeps a folder from defining a stack: another module depends on this package,
    /// and no glob decides otherwise.
    pub(super) fn used_package(&self, folder: &RepoPath, project: Option<&RepoPath>) -> Option<&RepoPath> {
        let (package, kind) = self.in_package(folder, project)?;
        (kind == PackageKind::Dependency && self.by_glob(folder).is_none()).then_some(package)
    }

    fn in_package(&self, folder: &RepoPath, project: Option<&RepoPath>) -> Option<(&RepoPath, PackageKind)> {
        if self.packages.is_empty() {
            return None;
        }
        folder.ancestors().find_map(|above| {
            let (package, kind) = self.packages.get_key_value(&above)?;
            let below = |project: &RepoPath| project.is_within(package) && project != package;
            let leaves_out = match kind {
                PackageKind::Vendored => true,
                PackageKind::Dependency => project.is_some_and(below),
            };
            leaves_out.then_some((package, *kind))
        })
    }

    /// Returns the decision of the last glob that matches the folder or a folder above it; true means excluded.
    fn by_glob(&self, folder: &RepoPath) -> Option<bool> {
        let matches = |glob: &&Glob| {
            folder
                .ancestors()
                .any(|above| !above.is_root() && glob.matcher.is_match(above.as_str()))
        };
        self.globs.iter().rev().find(matches).map(|glob| !glob.takes_in)
    }
}

/// Returns the packages of a revision in which folders do not define stacks, sorted by folder.
pub(super) fn packages(
    reader: &ParsedFiles,
    tree: &FileTreeView,
) -> Result<Vec<(RepoPath, PackageKind)>, SourceError> {
    let mut packages = BTreeMap::new();
    for module in tree.module_folders() {
        if let Some(vendor) = vendor_above(tree, module) {
            packages.insert(vendor, PackageKind::Vendored);
            continue;
        }
        let Some(Ok(document)) = reader.modules.get(tree, &module.child("kcl.mod"))? else {
            continue;
        };
        let paths = document
            .dependencies
            .iter()
            .filter_map(|(_, dependency)| dependency.path.as_deref());
        for package in paths.filter_map(|path| module.join(path)) {
            // A module may depend on a package that contains it. The stacks of that package are real stacks.
            if !module.is_within(&package) && tree.is_file(&package.child("kcl.mod")) {
                packages.entry(package).or_insert(PackageKind::Dependency);
            }
        }
    }
    Ok(packages.into_iter().collect())
}

/// Returns the `vendor` folder that contains a module, if a `kcl.mod` is beside that folder.
fn vendor_above(tree: &FileTreeView, module: &RepoPath) -> Option<RepoPath> {
    module.ancestors().skip(1).find(|above| {
        above.file_name() == "vendor"
            && above
                .parent()
                .is_some_and(|beside| tree.is_file(&beside.child("kcl.mod")))
    })
}
