//! The files that are open in the editor, and the findings that it shows.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{RepoPath, lint::Diagnostic};
use lsp_types::Url;

/// An open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    /// The URI in the spelling of the editor.
    pub(crate) uri: Url,
    /// The text in the editor.
    pub(crate) text: String,
}

/// The open files of the repository, with their findings.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    pub(crate) open: BTreeMap<RepoPath, OpenFile>,
    found: Vec<Diagnostic>,
}

impl OpenFiles {
    /// Replaces all findings. Returns the files whose findings may have changed.
    pub(crate) fn set_found(&mut self, found: Vec<Diagnostic>) -> BTreeSet<RepoPath> {
        let before = std::mem::replace(&mut self.found, found);
        let all = before.iter().chain(&self.found);
        all.map(|found| found.file.clone()).collect()
    }

    /// Returns the findings in a file.
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
