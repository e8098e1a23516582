//! [`ParsedFiles`]: the small files of a layout. Each content is parsed once, even if several stacks or revisions share
//! it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    FileTreeView, Settings,
    kcl_mod::KclMod,
    manifests::{ProjectManifest, StackManifest},
};
use konverge_base::{
    model::{
        RepoPath,
        file_source::{BlobId, FileKind, SourceError},
    },
    yaml::YamlError,
};

/// The parsed files, by their kind.
pub(super) struct ParsedFiles {
    pub(super) projects: Parsed<ProjectManifest>,
    pub(super) stacks: Parsed<StackManifest>,
    pub(super) settings: Parsed<Settings>,
    pub(super) modules: Parsed<KclMod, String>,
}

/// The parsed files of one kind, by content.
pub(super) struct Parsed<T, E = YamlError> {
    parse: fn(&[u8]) -> Result<T, E>,
    known: Mutex<HashMap<BlobId, Result<Arc<T>, E>>>,
}

impl<T, E: Clone> Parsed<T, E> {
    fn new(parse: fn(&[u8]) -> Result<T, E>) -> Self {
        Self {
            parse,
            known: Mutex::default(),
        }
    }

    /// Returns the parsed content of a file; `None` if there is no such file.
    pub(super) fn get(
        &self,
        tree: &FileTreeView,
        file: &RepoPath,
    ) -> Result<Option<Result<Arc<T>, E>>, SourceError> {
        let entry = tree.file(file).map(|(_, entry)| entry);
        entry.map(|entry| self.parse(tree, entry.blob)).transpose()
    }

    fn parse(&self, tree: &FileTreeView, blob: BlobId) -> Result<Result<Arc<T>, E>, SourceError> {
        if let Some(known) = self.lock().get(&blob) {
            return Ok(known.clone());
        }
        let parsed = (self.parse)(&tree.source().read(blob)?).map(Arc::new);
        Ok(self.lock().entry(blob).or_insert(parsed).clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlobId, Result<Arc<T>, E>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files of a kind that can be parsed before somebody asks for them.
trait Prefetch: Sync {
    fn knows(&self, blob: BlobId) -> bool;
    fn prefetch(&self, tree: &FileTreeView, blob: BlobId) -> Result<(), SourceError>;
}

impl<T: Send + Sync, E: Clone + Send> Prefetch for Parsed<T, E> {
    fn knows(&self, blob: BlobId) -> bool {
        self.lock().contains_key(&blob)
    }

    fn prefetch(&self, tree: &FileTreeView, blob: BlobId) -> Result<(), SourceError> {
        self.parse(tree, blob).map(drop)
    }
}

/// The number of threads that read and parse. CI machines usually have two cores.
const READERS: usize = 2;

impl Default for ParsedFiles {
    fn default() -> Self {
        Self {
            projects: Parsed::new(ProjectManifest::parse),
            stacks: Parsed::new(StackManifest::parse),
            settings: Parsed::new(Settings::parse),
            modules: Parsed::new(KclMod::parse),
        }
    }
}

impl ParsedFiles {
    /// Reads every needed small file of the layout, on several threads, each content once.
    pub(super) fn prefetch(
        &self,
        tree: &FileTreeView,
        is_wanted: impl Fn(&RepoPath) -> bool,
    ) -> Result<(), SourceError> {
        // Sorted by path: neighbours are often stored as deltas of one another, which git then reads faster.
        let mut wanted: Vec<(&dyn Prefetch, BlobId)> = Vec::new();
        let mut met = HashSet::new();
        let files = tree.source().files().iter();
        for (path, entry) in files.filter(|(path, _)| is_wanted(path)) {
            let (kind, class): (&dyn Prefetch, _) = match path.file_name() {
                "project.yaml" => (&self.projects, 0),
                "stack.yaml" => (&self.stacks, 1),
                "kcl.yaml" => (&self.settings, 2),
                "settings.yaml" if path.as_str().ends_with("ci-test/settings.yaml") => (&self.settings, 2),
                "kcl.mod" => (&self.modules, 3),
                _ => continue,
            };
            let mut is_new = || !kind.knows(entry.blob) && met.insert((class, entry.blob));
            if entry.kind == FileKind::File && is_new() {
                wanted.push((kind, entry.blob));
            }
        }
        let read_some = |some: &[(&dyn Prefetch, BlobId)]| {
            let mut some = some.iter();
            some.try_for_each(|(kind, blob)| kind.prefetch(tree, *blob))
        };
        if wanted.len() < 64 {
            return read_some(&wanted);
        }
        std::thread::scope(|scope| {
            let readers: Vec<_> = wanted
                .chunks(wanted.len().div_ceil(READERS))
                .map(|chunk| scope.spawn(|| read_some(chunk)))
                .collect();
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().expect("a reader parses or returns its error"))
        })
    }
}
