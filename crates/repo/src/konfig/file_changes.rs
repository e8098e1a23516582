//! [`Changes`]: the differences between the files of two revisions.

use std::{cmp::Ordering, collections::HashSet};

use super::FileTreeView;
use konverge_base::model::{
    RepoPath,
    file_source::{FileEntry, FileKind},
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

/// The paths that differ between two revisions, and what they may influence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The paths whose entries differ.
    pub paths: HashSet<RepoPath>,
    /// True if every path still leads to the same file, as far as KCL is concerned: files were added or
    /// removed only where that affects no import, package, module, CRD or folder, and no link differs or
    /// leads to a changed path.
    pub shape_kept: bool,
    /// The added and removed paths, and every folder above them.
    pub(super) appeared: HashSet<RepoPath>,
    /// True if no link differs or leads to a changed path.
    pub(super) links_kept: bool,
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
                changes.add(path, old, new, before, after);
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
        before: &FileTreeView,
        after: &FileTreeView,
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

    /// Returns true if the file `name` in the folder differs.
    pub(super) fn hold(&self, folder: &RepoPath, name: &str) -> bool {
        folder.join(name).is_some_and(|path| self.paths.contains(&path))
    }

    /// Returns true if no file differs that defines a layout.
    pub(super) fn keep_layout(&self) -> bool {
        self.links_kept
            && !self
                .paths
                .iter()
                .any(|path| LAYOUT_FILES.contains(&path.file_name()))
    }
}

/// Returns true if an added or removed file does not change what any path leads to: it is not KCL, part of
/// the layout or a CRD, and other files keep its folder in both revisions.
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
