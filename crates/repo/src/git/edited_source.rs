//! [`EditedSource`]: a revision with other contents for some files. Nothing is written to disk.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{GitError, object_ids::blob_id};
use konverge_base::model::{
    RepoPath,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
};

/// A revision with edited files.
pub struct EditedSource {
    below: Arc<dyn Source>,
    files: FileTree,
    contents: HashMap<BlobId, Arc<[u8]>>,
}

impl EditedSource {
    /// Creates the revision `below` with these contents.
    ///
    /// # Errors
    /// The id of a content cannot be computed.
    pub fn new(below: &Arc<dyn Source>, edits: &BTreeMap<RepoPath, Arc<[u8]>>) -> Result<Self, GitError> {
        let (mut files, mut contents) = (below.files().clone(), HashMap::new());
        for (path, content) in edits {
            let blob = blob_id(git2::Oid::hash_object(git2::ObjectType::Blob, content)?);
            let kind = FileKind::File;
            files.insert(path.clone(), FileEntry { blob, kind });
            contents.insert(blob, Arc::clone(content));
        }
        Ok(Self {
            below: Arc::clone(below),
            files,
            contents,
        })
    }
}

impl Source for EditedSource {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        match self.contents.get(&blob) {
            Some(content) => Ok(Arc::clone(content)),
            None => self.below.read(blob),
        }
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        self.below.earlier_files()
    }
}
