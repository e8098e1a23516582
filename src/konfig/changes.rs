//! [`Changes`]: the differences between the files of two revisions, and which parts of one revision's layout
//! are valid for the other.

use std::{cmp::Ordering, collections::HashSet, sync::Arc};

use super::{FileTreeView, Layout, LayoutError, LayoutReader, LayoutRules, PackageKind, Project};
use crate::model::{
    RepoPath,
    file_source::{FileEntry, FileKind},
    stack::{Entry, Stack},
};

/// The files that define a layout.
const LAYOUT_FILES: [&str; 6] = [
    "project.yaml",
    "stack.yaml",
    "kcl.yaml",
    "settings.yaml",
    "kcl.mod",
    "kcl.mod.lock",
];

/// The paths that differ, and what they may influence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Every path whose entry differs.
    pub paths: HashSet<RepoPath>,
    /// True if every path still leads to the same place, as far as KCL is concerned. Files were added or
    /// removed only where that affects no import, package, module, CRD or folder, and no link differs or
    /// leads to a change.
    pub shape_kept: bool,
    /// Added and removed paths, and every folder above them.
    appeared: HashSet<RepoPath>,
    /// No link differs or leads to a change.
    links_kept: bool,
}

impl Changes {
    /// Compares two revisions in one pass over both sorted file lists.
    pub fn compute(before: &FileTreeView, after: &FileTreeView) -> Self {
        let mut changes = Self {
            paths: HashSet::new(),
            shape_kept: true,
            appeared: HashSet::new(),
            links_kept: true,
        };
        let (was, is) = (before.source().files(), after.source().files());
        if std::ptr::eq(was, is) {
            return changes;
        }
        let (mut left, mut right) = (was.iter().peekable(), is.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let old = if order.is_le() { left.next() } else { None };
            let new = if order.is_ge() { right.next() } else { None };
            let Some((path, _)) = old.or(new) else {
                break;
            };
            let (old, new) = (old.map(|(_, entry)| entry), new.map(|(_, entry)| entry));
            if old != new {
                changes.add(path, old, new, (before, after));
            }
        }
        changes.links_kept = changes.links_kept && !after.links_lead_to(&changes.paths);
        changes.shape_kept = changes.shape_kept && changes.links_kept;
        changes
    }

    fn add(
        &mut self,
        path: &RepoPath,
        old: Option<&FileEntry>,
        new: Option<&FileEntry>,
        (before, after): (&FileTreeView, &FileTreeView),
    ) {
        self.paths.insert(path.clone());
        let plain = |entry: &&FileEntry| entry.kind == FileKind::File;
        let all_plain = old.iter().all(plain) && new.iter().all(plain);
        self.links_kept &= all_plain;
        if old.is_some() && new.is_some() && all_plain {
            return;
        }
        self.appeared.extend(path.ancestors());
        self.shape_kept &= all_plain && is_neutral(path, before, after);
    }

    /// Returns true if a path differs.
    fn hold(&self, folder: &RepoPath, name: &str) -> bool {
        folder.join(name).is_some_and(|path| self.paths.contains(&path))
    }

    /// Returns true if no layout changes.
    fn keep_layout(&self) -> bool {
        self.links_kept
            && !self
                .paths
                .iter()
                .any(|path| LAYOUT_FILES.contains(&path.file_name()))
    }
}

/// Returns true if an added or removed file does not change the meaning of any path: it is not KCL, part of
/// the layout or a CRD, and its folder exists in both revisions without it.
fn is_neutral(path: &RepoPath, before: &FileTreeView, after: &FileTreeView) -> bool {
    let told_apart = path
        .as_str()
        .split('/')
        .any(|part| part.ends_with(".k") || part == "crd" || LAYOUT_FILES.contains(&part));
    let folder = path.parent().unwrap_or_default();
    let holds_others = |tree: &FileTreeView| {
        let mut files = tree.files_below(&folder).map(|(other, _)| other);
        files.any(|other| other != path && !other.is_within(path))
    };
    !told_apart && holds_others(before) && holds_others(after)
}

/// The parts of another revision's layout that are still valid, as far as its files are concerned.
pub(super) struct UnchangedLayout<'a> {
    layout: &'a Layout,
    changes: &'a Changes,
}

impl<'a> UnchangedLayout<'a> {
    /// `None` if the differences may influence any stack.
    fn from_layout(layout: &'a Layout, changes: &'a Changes) -> Option<Self> {
        let module = |path: &RepoPath| matches!(path.file_name(), "kcl.mod" | "kcl.mod.lock");
        let globs_hold = !layout.has_globs || changes.appeared.is_empty();
        let holds = changes.links_kept && globs_hold && !changes.paths.iter().any(module);
        holds.then_some(Self { layout, changes })
    }

    /// Returns true if a still valid stack may have a glob.
    pub(super) fn has_globs(&self) -> bool {
        self.layout.has_globs
    }

    /// The packages whose folders do not define stacks. They are valid because a changed `kcl.mod` would have
    /// invalidated the whole layout.
    pub(super) fn packages(&self) -> &'a [(RepoPath, PackageKind)] {
        &self.layout.packages
    }

    /// The project in a folder.
    pub(super) fn project(&self, folder: &RepoPath) -> Option<&'a Project> {
        let projects = &self.layout.projects;
        let at = projects
            .binary_search_by(|project| project.folder.cmp(folder))
            .ok()?;
        let file = folder.child("project.yaml");
        let broken = self.layout.problems.iter().any(|problem| problem.file == file);
        (!broken && !self.changes.paths.contains(&file)).then_some(&projects[at])
    }

    /// The stack in a folder, whose project must be valid too.
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

    /// Returns true if a file must be read.
    pub(super) fn lacks(&self, path: &RepoPath) -> bool {
        self.changes.paths.contains(path)
    }

    fn is_whole(&self) -> bool {
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

impl LayoutReader {
    /// As [`LayoutReader::layout`], but reuses the layout of another revision: only differences are read.
    ///
    /// # Errors
    /// As [`Layout::read`].
    pub fn layout_after(
        &self,
        before: &Arc<Layout>,
        changes: &Changes,
        tree: &FileTreeView,
        rules: &LayoutRules,
    ) -> Result<Arc<Layout>, LayoutError> {
        match UnchangedLayout::from_layout(before, changes) {
            Some(held) if held.is_whole() => Ok(Arc::clone(before)),
            held => self.layout_with(tree, rules, held.as_ref()).map(Arc::new),
        }
    }
}
