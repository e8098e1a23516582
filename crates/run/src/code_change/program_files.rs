//! The files that an edit of a stack may change: its own files, and the files of its project that stacks share.

use std::collections::BTreeSet;

use super::EditPlace;
use crate::OpenRevision;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        file_source::FileKind,
        stack::{EntryPackage, Stack},
    },
};

/// The KCL files of a stack's program that are in the stack or in its project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProgramFiles {
    /// The files in the folder of the stack, in the order of the program.
    pub own: Vec<RepoPath>,
    /// The files in the folder of the project, but in no stack.
    pub base: Vec<RepoPath>,
}

impl ProgramFiles {
    /// Reads the entry files of a stack's program.
    pub(super) fn read(revision: &OpenRevision, stack: &Stack) -> Result<Self, UserError> {
        let setup = stack.compile.as_ref().map_err(|error| {
            UserError::new(ErrorKind::Layout, error.message.clone()).at(
                error.file.to_string(),
                error.line,
                error.column,
            )
        })?;
        let (mut files, mut seen) = (Self::default(), BTreeSet::new());
        let in_other_stack = |path: &RepoPath| {
            let mut stacks = revision.layout.stacks.iter();
            stacks.any(|other| other.folder != stack.project_folder && path.is_within(&other.folder))
        };
        for entry in &setup.entries {
            if matches!(entry.package, EntryPackage::Dependency(_)) {
                continue;
            }
            for path in entry_files(revision, &entry.path) {
                if !seen.insert(path.clone()) {
                    continue;
                }
                if path.is_within(&stack.folder) {
                    files.own.push(path);
                } else if path.is_within(&stack.project_folder) && !in_other_stack(&path) {
                    files.base.push(path);
                }
            }
        }
        Ok(files)
    }

    /// Returns the files that an edit at `place` may change.
    pub(super) fn editable(&self, place: EditPlace) -> &[RepoPath] {
        match place {
            EditPlace::Stack => &self.own,
            EditPlace::Base => &self.base,
        }
    }

    /// Returns the first of these paths that is not a plain file, for example a link.
    pub(super) fn link<'p>(revision: &OpenRevision, paths: &'p [RepoPath]) -> Option<&'p RepoPath> {
        let kind = |path: &RepoPath| revision.source.files().get(path).map(|entry| entry.kind);
        paths.iter().find(|path| kind(path) != Some(FileKind::File))
    }
}

/// Returns the file of an entry, or the files of the folder that the entry names.
fn entry_files(revision: &OpenRevision, entry: &RepoPath) -> Vec<RepoPath> {
    let files = revision.source.files();
    if files.contains_key(entry) {
        return vec![entry.clone()];
    }
    let in_folder = |path: &&RepoPath| {
        path.parent().as_ref() == Some(entry)
            && path.file_name().ends_with(".k")
            && !path.file_name().ends_with("_test.k")
    };
    files.keys().filter(in_folder).cloned().collect()
}
