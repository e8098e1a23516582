//! [`ScanCache`]: the scan results of `.k` files, by content. Deleting the cache file is safe; the next run is slower.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{FileScan, cache_file};
use konverge_base::model::{
    Digest,
    file_source::{BlobId, Listing, Source, SourceError},
};

/// The number of threads that read and scan. CI machines usually have two cores.
const SCANNERS: usize = 2;

/// The maximum number of unknown file contents that are scanned again. For more of them, reading the cache file is
/// faster.
const FEW: usize = 24;

/// The number of contents up to which nothing is evicted (a cache file of a few hundred kilobytes).
const MODEST: usize = 4096;

/// The header of the cache file. Its number changes with the format or with the results of the scanner, and the package
/// version is part of it, so each release starts with a new cache.
const HEADER: &[u8] = concat!("konverge import index 5 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// The scan results by content. All revisions of a run share them, and a file keeps them between runs.
#[derive(Default)]
pub struct ScanCache {
    facts: Mutex<HashMap<BlobId, Arc<FileScan>>>,
    /// The cache file of an earlier run, until it is read.
    unread: Mutex<Option<PathBuf>>,
    grown: AtomicBool,
    /// The contents that [`ScanCache::learn_beside`] still has to scan, in batches; the next batch is the last.
    wanted: Mutex<Vec<Vec<BlobId>>>,
    /// Held for reading by each thread that scans. Whoever locks it for writing knows that all threads are done.
    learning: RwLock<()>,
}

impl ScanCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the path of a repository's scan cache among the caches of this machine.
    pub fn location(caches: &Path, repository: &Path) -> Option<PathBuf> {
        let repository = repository.canonicalize().ok()?;
        let key = Digest::of_bytes(repository.as_os_str().as_encoded_bytes()).short();
        Some(caches.join("affected").join(format!("{key}.index")))
    }

    /// Creates a cache from a file, which is read only when enough results are needed. A missing, damaged or
    /// incompatible file gives an empty cache.
    pub fn load(path: &Path) -> Self {
        Self {
            unread: Mutex::new(Some(path.to_owned())),
            ..Self::default()
        }
    }

    /// Writes the cache if it has grown.
    ///
    /// # Errors
    /// The folder cannot be written. The results of the analysis do not depend on the cache file.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        if !self.has_grown() {
            return Ok(());
        }
        self.grown.store(false, Ordering::Relaxed);
        cache_file::write(path, HEADER, &self.sorted_entries())
    }

    /// Returns the number of files with a known result.
    pub fn len(&self) -> usize {
        self.read_file();
        self.lock().len()
    }

    /// Returns true if no result is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the cache has gained enough results to be worth saving.
    pub fn has_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed)
    }

    /// Returns the scan result of each content, in order. Unknown contents are read and scanned in parallel.
    ///
    /// # Errors
    /// An object is missing or damaged.
    pub fn facts(&self, source: &dyn Source, blobs: &[BlobId]) -> Result<Vec<Arc<FileScan>>, SourceError> {
        let mut unknown = self.unknown_after_all(blobs);
        if !unknown.is_empty() {
            self.learn_wanted(source);
            drop(self.learning.write().unwrap_or_else(PoisonError::into_inner));
            unknown = self.unknown(&unknown);
        }
        if !unknown.is_empty() {
            let learned = learn(source, &unknown)?;
            self.lock().extend(learned);
            // While the cache file is unread, there are only few new results: not enough to write the file again.
            let read = self.unread().is_none();
            self.grown.fetch_or(read, Ordering::Relaxed);
        }
        let known = self.lock();
        Ok(blobs
            .iter()
            .map(|blob| Arc::clone(known.get(blob).expect("learned above")))
            .collect())
    }

    /// Runs `work`, and meanwhile scans the contents that it will probably need. A content that cannot be read is
    /// skipped here: the code that needs it reports the error.
    pub fn learn_beside<T>(&self, source: &dyn Source, blobs: &[BlobId], work: impl FnOnce() -> T) -> T {
        let unknown = self.unknown_after_all(blobs);
        if unknown.len() <= FEW {
            return work();
        }
        *self.wanted_blobs() = unknown.rchunks(32).map(<[BlobId]>::to_vec).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| self.learn_wanted(source));
            let done = work();
            self.wanted_blobs().clear();
            done
        })
    }

    /// Scans the wanted contents, one group after the other, until none is left.
    fn learn_wanted(&self, source: &dyn Source) {
        loop {
            let _under_way = self.learning.read().unwrap_or_else(PoisonError::into_inner);
            let Some(some) = self.wanted_blobs().pop() else {
                return;
            };
            if let Ok(learned) = learn(source, &some) {
                self.lock().extend(learned);
                self.grown.store(true, Ordering::Relaxed);
            }
        }
    }

    fn wanted_blobs(&self) -> MutexGuard<'_, Vec<Vec<BlobId>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts the contents that none of these revisions has, once they are the majority. The file thus stays in
    /// proportion to the repository, while files that a branch removed only for a while mostly stay known.
    pub fn drop_unused(&self, revisions: &[Listing]) {
        let mut known = self.lock();
        if known.len() <= MODEST {
            return;
        }
        let files = revisions.iter().flat_map(|revision| revision.files.values());
        let in_use: HashSet<BlobId> = files.map(|entry| entry.blob).collect();
        let used = known.keys().filter(|blob| in_use.contains(blob)).count();
        if known.len() > MODEST.max(2 * used) {
            known.retain(|blob, _| in_use.contains(blob));
        }
    }

    /// Returns the contents without a scan result. If there are more than a few, the cache file is read first.
    fn unknown_after_all(&self, blobs: &[BlobId]) -> Vec<BlobId> {
        let unknown = self.unknown(blobs);
        if unknown.len() <= FEW {
            return unknown;
        }
        self.read_file();
        self.unknown(&unknown)
    }

    fn unknown(&self, blobs: &[BlobId]) -> Vec<BlobId> {
        // Sorted by path: neighbours in the tree are often stored as deltas of one another, which git then reads
        // faster.
        let known = self.lock();
        let mut met = HashSet::new();
        let unknown = blobs
            .iter()
            .filter(|blob| !known.contains_key(blob) && met.insert(**blob));
        unknown.copied().collect()
    }

    fn read_file(&self) {
        let file = self.unread().take();
        if let Some(path) = file {
            let known = cache_file::read::<Vec<(BlobId, Arc<FileScan>)>>(&path, HEADER);
            self.lock().extend(known.into_iter().flatten());
        }
    }

    fn unread(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all results, sorted by content id.
    pub(super) fn sorted_entries(&self) -> Vec<(BlobId, Arc<FileScan>)> {
        let mut all: Vec<_> = self
            .lock()
            .iter()
            .map(|(blob, facts)| (*blob, Arc::clone(facts)))
            .collect();
        all.sort_unstable_by_key(|(blob, _)| *blob);
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlobId, Arc<FileScan>>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn learn(source: &dyn Source, blobs: &[BlobId]) -> Result<Vec<(BlobId, Arc<FileScan>)>, SourceError> {
    let learn_some = |blobs: &[BlobId]| -> Result<Vec<_>, SourceError> {
        blobs
            .iter()
            .map(|blob| Ok((*blob, Arc::new(FileScan::scan(&source.read(*blob)?)))))
            .collect()
    };
    if blobs.len() < 64 {
        return learn_some(blobs);
    }
    let parts: Vec<Result<Vec<_>, SourceError>> = std::thread::scope(|scope| {
        let scanners: Vec<_> = blobs
            .chunks(blobs.len().div_ceil(SCANNERS))
            .map(|chunk| scope.spawn(|| learn_some(chunk)))
            .collect();
        scanners
            .into_iter()
            .map(|scanner| scanner.join().expect("a scanner returns its facts or its error"))
            .collect()
    });
    let mut all = Vec::with_capacity(blobs.len());
    for part in parts {
        all.extend(part?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        file_source::{FileEntry, FileKind, FileTree, TreeId},
    };

    fn blob(n: usize) -> BlobId {
        let mut id = [0; 20];
        id[..8].copy_from_slice(&n.to_le_bytes());
        BlobId(id)
    }

    /// A cache that knows the first contents.
    fn cache(contents: usize) -> ScanCache {
        let cache = ScanCache::new();
        let scan = Arc::new(FileScan::scan(b"import a"));
        let known = (0..contents).map(|n| (blob(n), Arc::clone(&scan)));
        cache.lock().extend(known);
        cache.grown.store(true, Ordering::Relaxed);
        cache
    }

    /// A revision with the first contents.
    fn revision(contents: usize) -> Listing {
        let file = |n: usize| {
            let entry = FileEntry {
                blob: blob(n),
                kind: FileKind::File,
            };
            (RepoPath::root().child(&format!("{n}.k")), entry)
        };
        Listing {
            tree: TreeId([0; 20]),
            files: Arc::new((0..contents).map(file).collect()),
        }
    }

    fn kept(contents: usize, in_use: usize) -> usize {
        let cache = cache(contents);
        cache.drop_unused(&[revision(in_use)]);
        cache.len()
    }

    #[test]
    fn contents_that_no_revision_has_go_when_they_are_the_majority_of_a_large_cache() {
        let large = MODEST + 2;
        assert_eq!(kept(large, large / 2), large, "they are as many as the others");
        assert_eq!(kept(large, large / 2 - 1), large / 2 - 1);
        assert_eq!(kept(MODEST, 0), MODEST, "a small cache costs nothing");
    }

    /// A revision of which nothing can be read.
    struct Unreadable(FileTree);

    impl Source for Unreadable {
        fn files(&self) -> &FileTree {
            &self.0
        }

        fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
            Err(SourceError {
                what: blob.to_string(),
                why: "it is not there".into(),
            })
        }
    }

    /// A revision in which each content is an import.
    struct Readable(FileTree);

    impl Source for Readable {
        fn files(&self) -> &FileTree {
            &self.0
        }

        fn read(&self, _: BlobId) -> Result<Arc<[u8]>, SourceError> {
            Ok(Arc::from(&b"import a"[..]))
        }
    }

    #[test]
    fn each_repository_has_a_cache_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let repository = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            ScanCache::location(Path::new("/caches"), &path).unwrap()
        };
        let (one, two) = (repository("one"), repository("two"));
        assert_ne!(one, two);
        assert_eq!(one.parent(), Some(Path::new("/caches/affected")));
        assert_eq!(one.extension().unwrap(), "index");
        assert_eq!(
            ScanCache::location(Path::new("/caches"), &folder.path().join("none")),
            None
        );
    }

    #[test]
    fn who_asks_scans_first_what_was_announced() {
        let cache = ScanCache::new();
        assert!(cache.is_empty());
        *cache.wanted_blobs() = vec![vec![blob(1)], vec![blob(2), blob(3)]];
        let source = Readable(FileTree::new());
        assert_eq!(cache.facts(&source, &[blob(4)]).unwrap().len(), 1);
        assert!(!cache.is_empty() && cache.has_grown());
        assert_eq!(cache.len(), 4);
        assert!(cache.wanted_blobs().is_empty());
        // What is known needs no work.
        *cache.wanted_blobs() = vec![vec![blob(5)]];
        assert_eq!(cache.facts(&source, &[blob(4), blob(4)]).unwrap().len(), 2);
        assert_eq!(cache.len(), 4);
    }

    #[test]
    fn what_an_earlier_run_scanned_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index");
        cache(FEW + 1).save(&file).unwrap();
        let blobs: Vec<_> = (0..=FEW).map(blob).collect();
        let source = Unreadable(FileTree::new());
        let facts = ScanCache::load(&file).facts(&source, &blobs).unwrap();
        assert_eq!(facts.len(), FEW + 1);
        assert!(ScanCache::new().facts(&source, &blobs).is_err());
    }
}
