//! [`Changes`]: what differs between the files of two revisions.

use std::{cmp::Ordering, collections::HashSet, sync::Arc};

use super::{Layout, LayoutError, Reader, SettingsOrder, Tree};
use crate::model::{RepoPath, source::FileKind};

/// Files that a layout is read from.
const LAYOUT_FILES: [&str; 6] = [
    "project.yaml",
    "stack.yaml",
    "kcl.yaml",
    "settings.yaml",
    "kcl.mod",
    "kcl.mod.lock",
];

/// The paths that differ, and how much that may bear on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Every path whose entry differs.
    pub paths: HashSet<RepoPath>,
    /// Both revisions have the same files, links and folders, and no link leads to what differs: every path leads
    /// where it led, only contents are others.
    pub contents_only: bool,
}

impl Changes {
    /// Compares two revisions. Both file lists are sorted: one walk along the two.
    pub fn between(before: &Tree, after: &Tree) -> Self {
        let mut paths = HashSet::new();
        let mut contents_only = true;
        let (was, is) = (before.source().files(), after.source().files());
        if std::ptr::eq(was, is) {
            return Self { paths, contents_only };
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
            match (old, new) {
                (Some((_, old)), Some((_, new))) if old == new => {}
                (Some((path, old)), Some((_, new))) => {
                    contents_only &= old.kind == FileKind::File && new.kind == FileKind::File;
                    paths.insert(path.clone());
                }
                (old, new) => {
                    contents_only = false;
                    paths.extend(old.or(new).map(|(path, _)| path.clone()));
                }
            }
        }
        contents_only = contents_only && !after.links_lead_to(&paths);
        Self { paths, contents_only }
    }

    /// Whether a layout may come out otherwise.
    fn bear_on_layout(&self) -> bool {
        !self.contents_only
            || self
                .paths
                .iter()
                .any(|path| LAYOUT_FILES.contains(&path.file_name()))
    }
}

impl Reader {
    /// As [`Reader::layout`], by way of another revision's: where nothing that a layout is read from differs, it is
    /// the same.
    ///
    /// # Errors
    /// As [`Layout::read`].
    pub fn layout_after(
        &self,
        before: &Arc<Layout>,
        changes: &Changes,
        tree: &Tree,
        order: SettingsOrder,
    ) -> Result<Arc<Layout>, LayoutError> {
        if changes.bear_on_layout() {
            self.layout(tree, order).map(Arc::new)
        } else {
            Ok(Arc::clone(before))
        }
    }
}
