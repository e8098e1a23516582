//! A small repository in memory, for tests.
use std::{collections::BTreeMap, sync::Arc};

use super::{Analysis, ScanCache};
use crate::konfig::{Layout, SettingsOrder};
use konverge_base::model::{
    CommitId, Digest, RepoPath,
    file_source::{BlobId, FileEntry, FileKind, FileTree, Listing, Source, SourceError, TreeId},
};

/// The files of a commit. A text that begins with `-> ` is a link.
pub(super) struct MemoryFiles {
    files: Arc<FileTree>,
    contents: BTreeMap<BlobId, Arc<[u8]>>,
    commit: CommitId,
}

impl Source for MemoryFiles {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        Ok(Arc::clone(&self.contents[&blob]))
    }

    fn commit(&self) -> Option<&CommitId> {
        Some(&self.commit)
    }

    fn listing(&self) -> Option<Listing> {
        Some(Listing {
            tree: TreeId([7; 20]),
            files: Arc::clone(&self.files),
        })
    }
}

pub(super) fn path(text: &str) -> RepoPath {
    RepoPath::normalize(text).unwrap()
}

pub(super) fn source(texts: &[(&str, &str)]) -> Arc<dyn Source> {
    let mut files = FileTree::new();
    let mut contents = BTreeMap::new();
    for (name, text) in texts {
        let (kind, text) = match text.strip_prefix("-> ") {
            Some(target) => (FileKind::Symlink, target),
            None => (FileKind::File, *text),
        };
        let mut blob = BlobId([0; 20]);
        blob.0
            .copy_from_slice(&Digest::of_bytes(text.as_bytes()).as_bytes()[..20]);
        contents.insert(blob, Arc::from(text.as_bytes()));
        files.insert(path(name), FileEntry { blob, kind });
    }
    Arc::new(MemoryFiles {
        files: Arc::new(files),
        contents,
        commit: "c".repeat(40).parse().unwrap(),
    })
}

/// The analysis of a module with the project `shop` and its stack `shop/dev`, and of these files.
pub(super) fn analysis(texts: &[(&str, &str)]) -> Analysis {
    let own = [
        ("kcl.mod", "[package]\nname = \"mono\"\n"),
        ("shop/project.yaml", "name: shop\n"),
        ("shop/dev/stack.yaml", "name: dev\n"),
        ("shop/dev/kcl.yaml", "kcl_cli_configs:\n  file: [main.k]\n"),
    ];
    let source = source(&own.into_iter().chain(texts.iter().copied()).collect::<Vec<_>>());
    let layout = Layout::read(&source, SettingsOrder::V090).unwrap();
    Analysis::new(source, layout, "0.13.2", &ScanCache::new()).unwrap()
}
