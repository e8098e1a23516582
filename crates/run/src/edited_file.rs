//! Finds the stacks that an edit of a file would affect.

use std::{collections::BTreeMap, sync::Arc};

use crate::{AnalysisCache, OpenRevision};
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        affected::Affected,
        file_source::{FileKind, Source},
    },
};
use konverge_repo::git::EditedSource;

impl OpenRevision {
    /// Returns the stacks that an edit of a file affects, with the import chains to them; `None` if the revision does
    /// not have the file. Computed as `konverge affected` would for one more line in the file, so it is valid for edits
    /// that change no import.
    ///
    /// # Errors
    /// The file cannot be read or analyzed.
    pub fn affected_by_edit(
        &self,
        known: &AnalysisCache,
        file: &RepoPath,
    ) -> Result<Option<Affected>, UserError> {
        let entry = self.source.files().get(file);
        let Some(entry) = entry.filter(|entry| entry.kind == FileKind::File) else {
            return Ok(None);
        };
        let content = self.source.read(entry.blob)?;
        let mut edited = content.to_vec();
        edited.push(b'\n');
        let edits = BTreeMap::from([(file.clone(), Arc::from(edited))]);
        let source: Arc<dyn Source> = Arc::new(EditedSource::new(&self.source, &edits)?);
        let edited = self.with_source(known, source)?;
        known.forget_earlier();
        Ok(Some(edited.analysis.compare(&self.analysis)))
    }
}
