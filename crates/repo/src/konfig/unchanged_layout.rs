//! [`UnchangedLayout`]: the parts of another revision's layout that are still valid.

use super::{Changes, Layout, PackageKind, Project};
use konverge_base::model::{
    RepoPath,
    stack::{Entry, Stack},
};

/// The parts of another revision's layout that are still valid in this revision.
pub(super) struct UnchangedLayout<'a> {
    layout: &'a Layout,
    changes: &'a Changes,
}

impl<'a> UnchangedLayout<'a> {
    /// Returns the valid parts of a layout; `None` if the differences may influence every stack.
    pub(super) fn from_layout(layout: &'a Layout, changes: &'a Changes) -> Option<Self> {
        let module = |path: &RepoPath| matches!(path.file_name(), "kcl.mod" | "kcl.mod.lock");
        let globs_hold = !layout.has_globs || changes.appeared.is_empty();
        let holds = changes.links_kept && globs_hold && !changes.paths.iter().any(module);
        holds.then_some(Self { layout, changes })
    }

    /// Returns true if a stack that is still valid may have a glob.
    pub(super) fn has_globs(&self) -> bool {
        self.layout.has_globs
    }

    /// Returns the packages in which folders do not define stacks. They are valid, because a changed `kcl.mod` would
    /// have invalidated the whole layout.
    pub(super) fn packages(&self) -> &'a [(RepoPath, PackageKind)] {
        &self.layout.packages
    }

    /// Returns the project in a folder.
    pub(super) fn project(&self, folder: &RepoPath) -> Option<&'a Project> {
        let projects = &self.layout.projects;
        let at = projects
            .binary_search_by(|project| project.folder.cmp(folder))
            .ok()?;
        let file = folder.child("project.yaml");
        let broken = self.layout.problems.iter().any(|problem| problem.file == file);
        (!broken && !self.changes.paths.contains(&file)).then_some(&projects[at])
    }

    /// Returns the stack in a folder, if it and its project are still valid.
    pub(super) fn stack(&self, folder: &RepoPath, project: &Project) -> Option<&'a Stack> {
        self.project(&project.folder)?;
        let stacks = &self.layout.stacks;
        let at = stacks.binary_search_by(|stack| stack.folder.cmp(folder)).ok()?;
        let stack = &stacks[at];
        let setup = stack.compile.as_ref().ok()?;
        let differs = ["stack.yaml", "kcl.yaml", "ci-test/settings.yaml"]
            .iter()
            .any(|name| self.changes.hold(folder, name));
        let moved = |entry: &Entry| self.changes.appeared.contains(&entry.path);
        let holds = stack.project_folder == project.folder && !differs && !setup.entries.iter().any(moved);
        holds.then_some(stack)
    }

    /// Returns true if a file differs and must be read again.
    pub(super) fn must_read(&self, path: &RepoPath) -> bool {
        self.changes.paths.contains(path)
    }

    pub(super) fn is_whole(&self) -> bool {
        let entries = self
            .layout
            .stacks
            .iter()
            .filter_map(|stack| stack.compile.as_ref().ok());
        let mut entries = entries.flat_map(|setup| &setup.entries);
        self.changes.keep_layout()
            && (self.changes.appeared.is_empty()
                || (self.layout.problems.is_empty()
                    && !entries.any(|entry| self.changes.appeared.contains(&entry.path))))
    }
}
