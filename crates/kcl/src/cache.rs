//! [`Cache`]: the results of compilations (values or refusals), by the digest of everything that influences them.
//!
//! The cache is a local folder and, behind it, a store that several machines share ([`SharedCache`], which `run`
//! implements). Each entry contains its key and a checksum: a truncated, damaged or misplaced entry is deleted and compiled
//! again. Files are created by renaming, so any number of processes may use one folder. Only those errors are cached
//! that depend on the files alone ([`super::KclError::lasting_refusal`]). The results of the formatter are in the same
//! folder. Deleting the cache is safe; the next run is slower.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use serde::Serialize;

use super::{Compiled, FormatVerdict, KclDiagnostic};
use konverge_base::{atomic_file, model::Digest};

/// The first word of an entry with a compiled value. It changes with the format.
const COMPILED: &str = "konverge-compiled-1";

/// The first word of an entry with the errors of a refused program.
const REFUSED: &str = "konverge-refused-1";

/// The first word of an entry with a result of the formatter.
const FORMAT: &str = "konverge-format-1";

/// The cached result of a compilation: its value, or the errors with which KCL refused the code.
pub type Kept = Result<Compiled, Vec<KclDiagnostic>>;

/// The time after which a used entry gets a new modification time. Until then, reading it causes no write.
const TOUCH: Duration = Duration::from_secs(24 * 3600);

/// A cache that several machines share. Its failures only cost time, so its errors are plain messages.
#[async_trait]
pub trait SharedCache: Send + Sync {
    /// Returns the entry of a key; `None` if there is none.
    async fn get(&self, key: &Digest) -> Result<Option<Vec<u8>>, String>;
    /// Stores an entry. If the key has an entry already, that may stay.
    async fn put(&self, key: &Digest, entry: Vec<u8>) -> Result<(), String>;
    /// Removes a damaged entry.
    async fn remove(&self, key: &Digest) -> Result<(), String>;
}

/// The allowed access to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAccess {
    /// Entries may be read and written.
    ReadWrite,
    /// Entries may only be read. For code from a fork, so that the default branch never reads a result of that code.
    ReadOnly,
}

/// The cached results by key.
#[derive(Clone)]
pub struct Cache {
    folder: Option<PathBuf>,
    shared: Option<Arc<dyn SharedCache>>,
    access: CacheAccess,
}

/// The usage of a cache folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    /// The number of entries.
    pub entries: u64,
    /// The total size of the entries in bytes.
    pub bytes: u64,
}

impl Cache {
    /// Creates a cache from a folder (`None` for no local entries) and a shared cache.
    pub fn new(folder: Option<PathBuf>, shared: Option<Arc<dyn SharedCache>>, access: CacheAccess) -> Self {
        Self {
            folder,
            shared,
            access,
        }
    }

    /// Returns the cached result of a compilation.
    pub async fn get(&self, key: &Digest) -> Option<Kept> {
        self.read(key, unseal).await
    }

    /// Returns the cached formatter result of a file.
    pub async fn get_format(&self, key: &Digest) -> Option<FormatVerdict> {
        self.read(key, unseal_format).await
    }

    async fn read<T>(&self, key: &Digest, unseal: fn(&Digest, &[u8]) -> Option<T>) -> Option<T> {
        if let Some(path) = self.path(key)
            && let Ok(entry) = std::fs::read(&path)
        {
            if let Some(kept) = unseal(key, &entry) {
                touch(&path);
                return Some(kept);
            }
            tracing::warn!(%key, "a damaged entry of the compile cache is recreated");
            if self.access == CacheAccess::ReadWrite {
                let _ = std::fs::remove_file(&path);
            }
        }
        let shared = self.shared.as_ref()?;
        let entry = match shared.get(key).await {
            Ok(entry) => entry?,
            Err(why) => {
                tracing::warn!(%key, why, "the shared compile cache cannot be read");
                return None;
            }
        };
        match unseal(key, &entry) {
            Some(kept) => {
                self.keep(key, &entry);
                Some(kept)
            }
            None => {
                tracing::warn!(%key, "a damaged entry of the shared compile cache is recreated");
                if self.access == CacheAccess::ReadWrite {
                    let _ = shared.remove(key).await;
                }
                None
            }
        }
    }

    /// Stores the compiled value of a key. A failure is ignored: it only costs time.
    pub async fn put(&self, key: &Digest, compiled: &Compiled) {
        self.put_entry(key, seal(COMPILED, key, compiled)).await;
    }

    /// Stores the errors with which KCL refused the code of a key. A failure is ignored: it only costs time.
    pub async fn put_refusal(&self, key: &Digest, refusal: &[KclDiagnostic]) {
        self.put_entry(key, seal(REFUSED, key, &refusal)).await;
    }

    /// Stores the formatter result of a file. A failure is ignored: it only costs time.
    pub async fn put_format(&self, key: &Digest, verdict: FormatVerdict) {
        self.put_entry(key, seal(FORMAT, key, &verdict)).await;
    }

    async fn put_entry(&self, key: &Digest, entry: Vec<u8>) {
        if self.access == CacheAccess::ReadOnly {
            return;
        }
        self.keep(key, &entry);
        if let Some(shared) = &self.shared
            && let Err(why) = shared.put(key, entry).await
        {
            tracing::warn!(%key, why, "the shared compile cache cannot be written");
        }
    }

    fn path(&self, key: &Digest) -> Option<PathBuf> {
        let name = key.to_string();
        Some(self.folder.as_ref()?.join(&name[..2]).join(&name[2..]))
    }

    fn keep(&self, key: &Digest, entry: &[u8]) {
        if self.access == CacheAccess::ReadOnly {
            return;
        }
        if let Some(path) = self.path(key)
            && let Err(error) = atomic_file::write(&path, entry)
        {
            tracing::warn!(path = %path.display(), %error, "the compile cache cannot be written");
        }
    }
}

/// Counts the entries of a cache folder.
///
/// # Errors
/// The folder cannot be listed. A missing folder counts as empty.
pub fn cache_use(folder: &Path) -> io::Result<CacheUse> {
    let mut all = CacheUse::default();
    each(folder, |_, metadata| {
        all.entries += 1;
        all.bytes += metadata.len();
        Ok(())
    })?;
    Ok(all)
}

/// Deletes the entries that were not used for this long; a duration of zero deletes all. Returns the deleted entries
/// and bytes.
///
/// # Errors
/// The folder cannot be listed, or an entry cannot be deleted.
pub fn prune_cache(folder: &Path, unused_for: Duration) -> io::Result<CacheUse> {
    let now = SystemTime::now();
    let mut deleted = CacheUse::default();
    each(folder, |path, metadata| {
        let unused = now.duration_since(metadata.modified()?).unwrap_or_default();
        if unused >= unused_for {
            match std::fs::remove_file(path) {
                // Another process may have deleted the file first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
            deleted.entries += 1;
            deleted.bytes += metadata.len();
        }
        Ok(())
    })?;
    Ok(deleted)
}

fn each(folder: &Path, mut seen: impl FnMut(&Path, &std::fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    let list = |folder: &Path| match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    for shard in list(folder)?.into_iter().flatten() {
        let shard = shard?;
        if !shard.file_type()?.is_dir() || shard.file_name().len() != 2 {
            continue;
        }
        for entry in list(&shard.path())?.into_iter().flatten() {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => seen(&entry.path(), &metadata)?,
                Ok(_) => {}
                // Another process may prune the folder at the same time.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn touch(path: &Path) {
    let old = |metadata: std::fs::Metadata| {
        let modified = metadata.modified().ok()?;
        Some(modified.elapsed().unwrap_or_default() > TOUCH)
    };
    if std::fs::metadata(path).ok().and_then(old) == Some(true)
        && let Ok(file) = std::fs::File::options().append(true).open(path)
    {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Formats an entry: `word key checksum` on the first line, then the value.
fn seal(word: &str, key: &Digest, body: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(body).expect("JSON values have a JSON text");
    let mut entry = format!("{word} {key} {}\n", Digest::of_bytes(&body)).into_bytes();
    entry.extend(body);
    entry
}

/// Returns the word and the value of an entry; `None` if the entry is damaged or belongs to another key.
fn open<'e>(key: &Digest, entry: &'e [u8]) -> Option<(&'e str, &'e [u8])> {
    let end = entry.iter().position(|byte| *byte == b'\n')?;
    let (head, body) = (std::str::from_utf8(&entry[..end]).ok()?, &entry[end + 1..]);
    let word = head.strip_suffix(&format!(" {key} {}", Digest::of_bytes(body)))?;
    Some((word, body))
}

fn unseal_format(key: &Digest, entry: &[u8]) -> Option<FormatVerdict> {
    let (word, body) = open(key, entry)?;
    serde_json::from_slice(body).ok().filter(|_| word == FORMAT)
}

fn unseal(key: &Digest, entry: &[u8]) -> Option<Kept> {
    let (word, body) = open(key, entry)?;
    match word {
        COMPILED => Some(Ok(serde_json::from_slice(body).ok()?)),
        REFUSED => {
            let refusal: Vec<KclDiagnostic> = serde_json::from_slice(body).ok()?;
            (!refusal.is_empty()).then_some(Err(refusal))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use serde_json::json;

    fn compiled(text: &str) -> Compiled {
        Compiled {
            documents: vec![json!({"z": text, "a": 1.0})],
            warnings: vec!["said".to_owned()],
            shared: BTreeSet::from(["v1:Namespace:shop".parse().unwrap()]),
            notes: vec!["it is left out".to_owned()],
        }
    }

    #[derive(Default)]
    struct Shared(Mutex<BTreeMap<Digest, Vec<u8>>>);

    impl Shared {
        fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, Vec<u8>>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[async_trait]
    impl SharedCache for Shared {
        async fn get(&self, key: &Digest) -> Result<Option<Vec<u8>>, String> {
            Ok(self.map().get(key).cloned())
        }
        async fn put(&self, key: &Digest, entry: Vec<u8>) -> Result<(), String> {
            self.map().insert(*key, entry);
            Ok(())
        }
        async fn remove(&self, key: &Digest) -> Result<(), String> {
            self.map().remove(key);
            Ok(())
        }
    }

    fn local(folder: &Path) -> Cache {
        Cache::new(Some(folder.to_owned()), None, CacheAccess::ReadWrite)
    }

    #[tokio::test]
    async fn what_was_kept_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let key = Digest::of_bytes(b"k");
        let cache = local(folder.path());
        assert_eq!(cache.get(&key).await, None);
        cache.put(&key, &compiled("x")).await;
        let back = cache.get(&key).await.unwrap().unwrap();
        assert_eq!(back, compiled("x"));
        assert_eq!(back.documents[0].to_string(), r#"{"z":"x","a":1.0}"#);
        assert_eq!(cache_use(folder.path()).unwrap().entries, 1);
    }

    #[tokio::test]
    async fn a_refusal_comes_back_and_a_fork_stores_none() {
        let folder = tempfile::tempdir().unwrap();
        let (key, other) = (Digest::of_bytes(b"k"), Digest::of_bytes(b"o"));
        let text = "EvaluationError\n --> /s/e2.k:5:5\n  |\n5 | a = A {x = 1}\n  |     ^ Instance check failed\n  |\n";
        let refusal = crate::diagnostic::read(text, Path::new("/s"));
        local(folder.path()).put_refusal(&key, &refusal).await;
        assert_eq!(local(folder.path()).get(&key).await, Some(Err(refusal.clone())));
        let fork = Cache::new(Some(folder.path().to_owned()), None, CacheAccess::ReadOnly);
        fork.put_refusal(&other, &refusal).await;
        assert_eq!(fork.get(&other).await, None);
        // An entry without a reason is none.
        local(folder.path()).put_refusal(&other, &[]).await;
        assert_eq!(fork.get(&other).await, None);
    }

    #[tokio::test]
    async fn damaged_and_misplaced_entries_are_no_entries() {
        let folder = tempfile::tempdir().unwrap();
        let cache = local(folder.path());
        let (one, other) = (Digest::of_bytes(b"1"), Digest::of_bytes(b"2"));
        cache.put(&one, &compiled("one")).await;
        let path = cache.path(&one).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // The entry of another key at this place.
        std::fs::create_dir_all(cache.path(&other).unwrap().parent().unwrap()).unwrap();
        std::fs::write(cache.path(&other).unwrap(), &whole).unwrap();
        assert_eq!(cache.get(&other).await, None);
        assert!(!cache.path(&other).unwrap().exists());
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(cache.get(&one).await, None, "cut at {end}");
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert_eq!(cache.get(&one).await, None);
        cache.put(&one, &compiled("one")).await;
        assert_eq!(cache.get(&one).await, Some(Ok(compiled("one"))));
    }

    #[tokio::test]
    async fn a_shared_entry_is_kept_here_and_a_damaged_one_is_removed_there() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::default());
        let key = Digest::of_bytes(b"k");
        let place: Arc<dyn SharedCache> = shared.clone();
        let writer = Cache::new(None, Some(Arc::clone(&place)), CacheAccess::ReadWrite);
        writer.put(&key, &compiled("x")).await;
        let reader = Cache::new(
            Some(folder.path().to_owned()),
            Some(place),
            CacheAccess::ReadWrite,
        );
        assert_eq!(reader.get(&key).await, Some(Ok(compiled("x"))));
        shared.map().clear();
        assert_eq!(reader.get(&key).await, Some(Ok(compiled("x"))));
        assert_eq!(writer.get(&key).await, None);
        shared.map().insert(key, b"poison".to_vec());
        assert_eq!(writer.get(&key).await, None);
        assert!(shared.map().is_empty());
    }

    #[tokio::test]
    async fn a_fork_writes_nothing_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::default());
        let place: Arc<dyn SharedCache> = shared.clone();
        let (key, kept) = (Digest::of_bytes(b"k"), Digest::of_bytes(b"kept"));
        Cache::new(None, Some(Arc::clone(&place)), CacheAccess::ReadWrite)
            .put(&kept, &compiled("x"))
            .await;
        let fork = Cache::new(Some(folder.path().to_owned()), Some(place), CacheAccess::ReadOnly);
        fork.put(&key, &compiled("evil")).await;
        // It may read, but what it reads is not stored in the local folder either.
        assert_eq!(fork.get(&kept).await, Some(Ok(compiled("x"))));
        shared.map().insert(key, b"poison".to_vec());
        assert_eq!(fork.get(&key).await, None);
        assert_eq!(shared.map().len(), 2);
        assert_eq!(cache_use(folder.path()).unwrap(), CacheUse::default());
    }

    #[tokio::test]
    async fn pruning_takes_what_was_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let cache = local(folder.path());
        let (old, new) = (Digest::of_bytes(b"old"), Digest::of_bytes(b"new"));
        for key in [&old, &new] {
            cache.put(key, &compiled("x")).await;
        }
        let day = Duration::from_secs(24 * 3600);
        let file = std::fs::File::options()
            .append(true)
            .open(cache.path(&old).unwrap())
            .unwrap();
        file.set_modified(SystemTime::now() - 40 * day).unwrap();
        assert_eq!(prune_cache(folder.path(), 30 * day).unwrap().entries, 1);
        assert_eq!(cache.get(&old).await, None);
        assert_eq!(cache.get(&new).await, Some(Ok(compiled("x"))));
        assert_eq!(prune_cache(folder.path(), Duration::ZERO).unwrap().entries, 1);
        assert_eq!(
            prune_cache(Path::new("/nonexistent"), Duration::ZERO).unwrap(),
            CacheUse::default()
        );
    }
}
