//! Chooses the files for the checks of single files: all, those of the named stacks, or those of a change. Also
//! replaces the text of one.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
};

use super::super::selected_stacks::SelectedStacks;
use konverge_base::{
    checkout::{Existing, write},
    error::{ErrorKind, Location, UserError},
    model::{RepoPath, file_source::FileKind, stack::Stack},
};
use konverge_repo::konfig::{Changes, PackageKind};
use konverge_run::{OpenRevision, compiler::FileContents};

/// Choice of the files to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileScope {
    /// The files of the whole repository.
    #[default]
    All,
    /// The files of the named stacks.
    Stacks,
    /// The files that a change touches; all files if there is no base to compare with.
    Change,
}

/// The files that the checks of single files read.
pub(super) struct CheckedFiles<'a> {
    workspace: &'a OpenRevision,
    stacks: &'a [Stack],
    scope: FileScope,
    /// More files to check, besides those of the scope.
    also: &'a [RepoPath],
    /// The files that differ from the base.
    changed: HashSet<RepoPath>,
    /// The files that the stacks are compiled from.
    compiled: BTreeSet<RepoPath>,
    /// The files that the stacks are compiled from now, but not at the base.
    added: BTreeSet<RepoPath>,
}

/// Replaces the text of a file of the checkout.
pub(super) fn replace(root: &Path, path: &RepoPath, text: &str) -> Result<(), UserError> {
    let written = write(root, path.as_str().as_ref(), text.as_bytes(), Existing::Replace);
    written.map(|_| ()).map_err(|error| {
        UserError::from_error(ErrorKind::Layout, error)
            .at(path.to_string(), None, None)
            .hint("make the path a plain file that can be written, or remove what is there, and run the command again")
    })
}

/// Returns the files that differ between the base and the checked revision; none if there is no base.
pub(super) fn changed_paths(selected: &SelectedStacks) -> HashSet<RepoPath> {
    let head = &selected.workspace;
    let base = selected.base.as_ref();
    base.map(|base| Changes::compute(base.analysis.tree(), head.analysis.tree()).paths)
        .unwrap_or_default()
}

impl<'a> CheckedFiles<'a> {
    /// Selects the files to check for these stacks.
    pub(super) fn new(
        selected: &'a SelectedStacks,
        stacks: &'a [Stack],
        scope: FileScope,
        also: &'a [RepoPath],
    ) -> Result<Self, UserError> {
        let workspace = &selected.workspace;
        let scope = match &selected.base {
            None if scope == FileScope::Change => FileScope::All,
            _ => scope,
        };
        let mut files = Self {
            workspace,
            stacks,
            scope,
            also,
            changed: changed_paths(selected),
            compiled: BTreeSet::new(),
            added: BTreeSet::new(),
        };
        for stack in stacks.iter().filter(|stack| stack.compile.is_ok()) {
            let now = paths(workspace, stack)?;
            let before = selected.base.as_ref().and_then(|base| {
                let old = workspace.layout.predecessor_of(&base.layout, stack)?;
                paths(base, old).ok()
            });
            if let Some(before) = before {
                files.added.extend(now.difference(&before).cloned());
            }
            files.compiled.extend(now);
        }
        Ok(files)
    }

    /// Returns true if the format and the imports of a KCL file are checked.
    pub(super) fn is_edited(&self, path: &RepoPath) -> bool {
        is_kcl(path) && !is_vendored(self.workspace, path) && self.is_in_scope(path)
    }

    /// Returns true if a file is checked by itself, no matter which stack reads it.
    pub(super) fn is_in_scope(&self, path: &RepoPath) -> bool {
        if self.also.contains(path) {
            return true;
        }
        match self.scope {
            FileScope::All => true,
            FileScope::Change => self.changed.contains(path),
            FileScope::Stacks => self.stacks.iter().any(|stack| {
                let in_other = |other: &Stack| other.folder != stack.folder && path.is_within(&other.folder);
                path.is_within(&stack.folder)
                    || path.is_within(&stack.project_folder)
                        && !self.workspace.layout.stacks.iter().any(in_other)
            }),
        }
    }

    /// Returns true if a file is checked for functions that make a Spec depend on more than the repository.
    pub(super) fn is_judged(&self, path: &RepoPath) -> bool {
        match self.scope {
            FileScope::All | FileScope::Stacks => true,
            FileScope::Change => self.changed.contains(path) || self.added.contains(path),
        }
    }

    /// Returns true if the tests in a folder run even if they import nothing that differs.
    pub(super) fn runs_tests_in(&self, folder: &RepoPath) -> bool {
        match self.scope {
            FileScope::All => true,
            FileScope::Change => false,
            FileScope::Stacks => {
                let beside = |path: &RepoPath| path.parent().as_ref() == Some(folder);
                self.compiled.iter().any(beside)
            }
        }
    }

    /// Returns the content of the files that the stacks are compiled from, and of the KCL files that are checked by
    /// themselves.
    pub(super) fn contents(&self) -> Result<FileContents, UserError> {
        let source = &self.workspace.source;
        let files = source.files().iter().filter(|(path, entry)| {
            entry.kind == FileKind::File && (self.compiled.contains(*path) || self.is_edited(path))
        });
        files
            .map(|(path, entry)| {
                let content = source.read(entry.blob);
                let content = content?;
                Ok((path.clone(), content))
            })
            .collect()
    }
}

fn paths(workspace: &OpenRevision, stack: &Stack) -> Result<BTreeSet<RepoPath>, UserError> {
    let closure = workspace.analysis.closure(stack)?;
    Ok(closure.files.into_iter().map(|file| file.path).collect())
}

/// Returns true if a file belongs to a vendored package, which other people maintain.
pub(super) fn is_vendored(workspace: &OpenRevision, path: &RepoPath) -> bool {
    let mut packages = workspace.layout.packages.iter();
    packages.any(|(folder, kind)| *kind == PackageKind::Vendored && path.is_within(folder))
}

pub(super) fn is_kcl(path: &RepoPath) -> bool {
    path.file_name().ends_with(".k")
}

pub(super) fn is_test(path: &RepoPath) -> bool {
    path.file_name().ends_with("_test.k")
}

/// Returns the file of an error, if it is a file of the repository.
pub(super) fn file_of(place: Option<&Location>) -> Option<RepoPath> {
    RepoPath::normalize(&place?.file)
}
