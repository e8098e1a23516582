//! [`ParsedFiles`]: the small files of a layout. Each content is parsed once, even if several stacks or revisions share
//! it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
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

/// The parsed files, by content.
#[derive(Default)]
pub(super) struct ParsedFiles {
    parsed: Mutex<HashMap<(BlobId, Class), Parsed>>,
}

/// The kind of a file, which decides its parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Project,
    Stack,
    Settings,
    Module,
}

/// A parsed file.
#[derive(Clone)]
enum Parsed {
    Project(Result<Arc<ProjectManifest>, YamlError>),
    Stack(Result<Arc<StackManifest>, YamlError>),
    Settings(Result<Arc<Settings>, YamlError>),
    Module(Result<Arc<KclMod>, String>),
}

/// The parsed content of a file; `None` if there is no such file.
type Found<T, E = YamlError> = Result<Option<Result<Arc<T>, E>>, SourceError>;

/// The number of threads that read and parse. CI machines usually have two cores.
const READERS: usize = 2;

impl ParsedFiles {
    pub(super) fn settings(&self, tree: &FileTreeView, file: &RepoPath) -> Found<Settings> {
        Ok(match self.parse_cached(tree, file, Class::Settings)? {
            Some(Parsed::Settings(settings)) => Some(settings),
            _ => None,
        })
    }

    pub(super) fn module(&self, tree: &FileTreeView, file: &RepoPath) -> Found<KclMod, String> {
        Ok(match self.parse_cached(tree, file, Class::Module)? {
            Some(Parsed::Module(module)) => Some(module),
            _ => None,
        })
    }

    pub(super) fn project(&self, tree: &FileTreeView, file: &RepoPath) -> Found<ProjectManifest> {
        Ok(match self.parse_cached(tree, file, Class::Project)? {
            Some(Parsed::Project(document)) => Some(document),
            _ => None,
        })
    }

    pub(super) fn stack(&self, tree: &FileTreeView, file: &RepoPath) -> Found<StackManifest> {
        Ok(match self.parse_cached(tree, file, Class::Stack)? {
            Some(Parsed::Stack(document)) => Some(document),
            _ => None,
        })
    }

    fn parse_cached(
        &self,
        tree: &FileTreeView,
        file: &RepoPath,
        class: Class,
    ) -> Result<Option<Parsed>, SourceError> {
        let Some((_, entry)) = tree.file(file) else {
            return Ok(None);
        };
        let key = (entry.blob, class);
        if let Some(parsed) = self
            .parsed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(Some(parsed.clone()));
        }
        let parsed = class.parse(&tree.source().read(entry.blob)?);
        let mut memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(memo.entry(key).or_insert(parsed).clone()))
    }

    /// Reads every needed small file of the layout, on several threads, each content once.
    pub(super) fn prefetch(
        &self,
        tree: &FileTreeView,
        is_wanted: impl Fn(&RepoPath) -> bool,
    ) -> Result<(), SourceError> {
        let mut wanted: Vec<(BlobId, Class)> = Vec::new();
        let files = tree.source().files().iter();
        for (path, entry) in files.filter(|(path, _)| is_wanted(path)) {
            let class = match path.file_name() {
                "project.yaml" => Class::Project,
                "stack.yaml" => Class::Stack,
                "kcl.yaml" => Class::Settings,
                "settings.yaml" if path.as_str().ends_with("ci-test/settings.yaml") => Class::Settings,
                "kcl.mod" => Class::Module,
                _ => continue,
            };
            if entry.kind == FileKind::File {
                wanted.push((entry.blob, class));
            }
        }
        {
            // Sorted by path: neighbours are often stored as deltas of one another, which git then reads faster.
            let memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut met = HashSet::new();
            wanted.retain(|key| !memo.contains_key(key) && met.insert(*key));
        }
        let read_some = |keys: &[(BlobId, Class)]| -> Result<Vec<_>, SourceError> {
            keys.iter()
                .map(|(blob, class)| Ok(((*blob, *class), class.parse(&tree.source().read(*blob)?))))
                .collect()
        };
        let parts: Vec<Result<Vec<_>, SourceError>> = if wanted.len() < 64 {
            vec![read_some(&wanted)]
        } else {
            std::thread::scope(|scope| {
                let readers: Vec<_> = wanted
                    .chunks(wanted.len().div_ceil(READERS))
                    .map(|chunk| scope.spawn(|| read_some(chunk)))
                    .collect();
                readers
                    .into_iter()
                    .map(|reader| reader.join().expect("a reader parses or returns its error"))
                    .collect()
            })
        };
        let mut memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            memo.extend(part?);
        }
        Ok(())
    }
}

impl Class {
    fn parse(self, bytes: &[u8]) -> Parsed {
        match self {
            Self::Project => Parsed::Project(ProjectManifest::parse(bytes).map(Arc::new)),
            Self::Stack => Parsed::Stack(StackManifest::parse(bytes).map(Arc::new)),
            Self::Settings => Parsed::Settings(Settings::parse(bytes).map(Arc::new)),
            Self::Module => Parsed::Module(KclMod::parse(bytes).map(Arc::new)),
        }
    }
}
