//! [`Index`]: what is known of `.k` files by content. Deleting it costs time, never truth.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::Facts;
use crate::model::source::{BlobId, Source, SourceError};

/// Threads that read and scan: as many as CI machines have cores.
const SCANNERS: usize = 2;

/// Facts by content; shared by all revisions of a run, kept in a file between runs.
#[derive(Default)]
pub struct Index {
    facts: Mutex<HashMap<BlobId, Arc<Facts>>>,
    grown: AtomicBool,
}

impl Index {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that starts with what an earlier run knew.
    pub(super) fn with(facts: HashMap<BlobId, Arc<Facts>>) -> Self {
        Self {
            facts: Mutex::new(facts),
            grown: AtomicBool::new(false),
        }
    }

    /// How many contents it knows.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether it knows nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it learned something since it was made or loaded.
    pub fn has_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed)
    }

    /// The facts of each content, in order; unknown ones are read and scanned, many at once.
    ///
    /// # Errors
    /// An object is missing or damaged.
    pub fn facts(&self, source: &dyn Source, blobs: &[BlobId]) -> Result<Vec<Arc<Facts>>, SourceError> {
        let mut unknown: Vec<BlobId> = {
            let known = self.lock();
            blobs
                .iter()
                .filter(|blob| !known.contains_key(blob))
                .copied()
                .collect()
        };
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let learned = learn(source, &unknown)?;
            self.lock().extend(learned);
            self.grown.store(true, Ordering::Relaxed);
        }
        let known = self.lock();
        Ok(blobs
            .iter()
            .map(|blob| Arc::clone(known.get(blob).expect("learned above")))
            .collect())
    }

    /// Everything known, sorted by content id.
    pub(super) fn sorted(&self) -> Vec<(BlobId, Arc<Facts>)> {
        let mut all: Vec<_> = self
            .lock()
            .iter()
            .map(|(blob, facts)| (*blob, Arc::clone(facts)))
            .collect();
        all.sort_unstable_by_key(|(blob, _)| *blob);
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<BlobId, Arc<Facts>>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn learn(source: &dyn Source, blobs: &[BlobId]) -> Result<Vec<(BlobId, Arc<Facts>)>, SourceError> {
    let learn_some = |blobs: &[BlobId]| -> Result<Vec<_>, SourceError> {
        blobs
            .iter()
            .map(|blob| Ok((*blob, Arc::new(Facts::of(&source.read(*blob)?)))))
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
