//! The files that the client has open, and the findings that it shows.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{RepoPath, lint::Diagnostic};
use lsp_types::Url;

/// An open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    /// The URI as the client spells it.
    pub(crate) uri: Url,
    /// The text in the editor.
    pub(crate) text: String,
}

/// The open files of the repository, and what was found for them.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: BTreeMap<RepoPath, OpenFile>,
    found: Vec<Diagnostic>,
}

impl OpenFiles {
    /// A file was opened.
    pub(crate) fn open(&mut self, file: RepoPath, uri: Url, text: String) {
        self.files.insert(file, OpenFile { uri, text });
    }

    /// The text of an open file was edited.
    pub(crate) fn edit(&mut self, file: &RepoPath, text: String) {
        if let Some(open) = self.files.get_mut(file) {
            open.text = text;
        }
    }

    /// A file was closed.
    pub(crate) fn close(&mut self, file: &RepoPath) {
        self.files.remove(file);
    }

    /// The open file of that path.
    pub(crate) fn get(&self, file: &RepoPath) -> Option<&OpenFile> {
        self.files.get(file)
    }

    /// The paths of all open files.
    pub(crate) fn paths(&self) -> Vec<RepoPath> {
        self.files.keys().cloned().collect()
    }

    /// Replaces the findings. Returns the files whose findings may differ now.
    pub(crate) fn set_found(&mut self, found: Vec<Diagnostic>) -> BTreeSet<RepoPath> {
        let before = std::mem::replace(&mut self.found, found);
        let all = before.iter().chain(&self.found);
        all.map(|found| found.file.clone()).collect()
    }

    /// The findings at a file.
    pub(crate) fn findings_at(&self, file: &RepoPath) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter().filter(move |found| found.file == *file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::lint::LintRule;

    #[test]
    fn findings_that_are_gone_are_published_as_gone() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let mut files = OpenFiles::default();
        let found = vec![Diagnostic::new(&path("b.k"), LintRule::Compile, "wrong")];
        assert_eq!(files.set_found(found.clone()), [path("b.k")].into());
        assert_eq!(files.findings_at(&path("b.k")).count(), 1);
        assert_eq!(files.findings_at(&path("a.k")).count(), 0);
        assert_eq!(files.set_found(Vec::new()), [path("b.k")].into());
        assert_eq!(files.findings_at(&path("b.k")).count(), 0);
    }
}
