//! The releases of a project in a workspace, where Kusion keeps them:
//!
//! ```text
//! releases/<project>/<workspace>/.metadata.yml   the newest revision, and the stack of each
//! releases/<project>/<workspace>/<revision>.yaml  a release: Spec, state, phase
//! ```
//!
//! A release that has not ended is Kusion's lock: Kusion then begins no other one. Kusion overwrites files
//! without a condition, so the store cannot detect that two programs begin a release at the same time.
//! Therefore each written release is read back.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    kusion::{self, KusionState, RELEASES},
    kusion_release::{ReleaseDocument, is_marked},
};
use crate::store::{Created, Key, Store, StoreError};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    model::{
        spec::Resource,
        state::{KusionRelease, Recorded},
    },
    yaml,
};

/// Errors of reading or writing Kusion's releases.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ReleaseError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{place}")]
    Unreadable {
        place: String,
        #[source]
        why: SharedError,
    },
    #[error("{place}: release {revision} was started by another program at the same time")]
    Begun { place: String, revision: u64 },
    #[error("{place}: somebody else wrote release {revision} while an operation of Konverge was in progress")]
    Changed { place: String, revision: u64 },
}

impl From<ReleaseError> for UserError {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Store(error) => error.into(),
            ReleaseError::Unreadable { .. } => Self::from_error(ErrorKind::State, error),
            ReleaseError::Begun { .. } => Self::new(ErrorKind::State, error.to_string())
                .hint("nothing was changed: wait until Kusion has ended, then import its release"),
            ReleaseError::Changed { .. } => Self::new(ErrorKind::State, error.to_string())
                .hint("Konverge's changes are in its own state: do not apply the stack with Kusion now, import the newest release, and apply again"),
        }
    }
}

/// The releases of a project in a workspace.
pub struct Releases {
    store: Arc<dyn Store>,
    folder: String,
}

/// The newest release.
pub struct NewestRelease {
    /// The parsed release.
    pub release: KusionState,
    text: String,
    metadata: Value,
}

impl NewestRelease {
    /// Returns true if Konverge began this release with the mark `mark`.
    pub fn is_marked(&self, mark: &str) -> bool {
        is_marked(&self.text, mark)
    }

    /// Returns the release as a JSON value.
    fn value(&self) -> Value {
        yaml::from_long_str(&self.text).unwrap_or_default()
    }
}

/// A release that Konverge has begun. Kusion starts no other one until it has ended.
pub struct BegunRelease {
    key: Key,
    text: String,
    document: ReleaseDocument,
    mark: String,
    revision: u64,
    /// The Spec of the previous release.
    spec_before: Value,
}

impl Releases {
    /// Creates a reader and writer for the releases in one of Kusion's backends.
    pub fn new(store: Arc<dyn Store>, project: &str, workspace: &str) -> Self {
        Self {
            store,
            folder: format!("releases/{project}/{workspace}"),
        }
    }

    /// Returns the address of the folder, for messages.
    pub fn place(&self) -> String {
        format!("{}/{}", self.store.url().trim_end_matches('/'), self.folder)
    }

    fn key(&self, name: &str) -> Key {
        Key::from_listing(format!("{}/{name}", self.folder))
    }

    fn unreadable(&self, why: impl Into<SharedError>) -> ReleaseError {
        ReleaseError::Unreadable {
            place: self.place(),
            why: why.into(),
        }
    }

    async fn text(&self, name: &str) -> Result<Option<String>, ReleaseError> {
        let bytes = self.store.get(&self.key(name)).await?;
        let text = bytes.map(|bytes| String::from_utf8(bytes.to_vec()));
        text.transpose()
            .map_err(|_| self.unreadable(format!("`{name}` is not text")))
    }

    /// Reads the newest release; `None` if there is none.
    ///
    /// # Errors
    /// The store fails, or its files are not Kusion's.
    pub async fn newest(&self) -> Result<Option<NewestRelease>, ReleaseError> {
        let Some(metadata) = self.text(RELEASES).await? else {
            return Ok(None);
        };
        let name = kusion::newest_release(&metadata).map_err(|error| self.unreadable(error))?;
        let metadata = yaml::from_str(&metadata).map_err(|error| self.unreadable(error))?;
        let text = self.text(&name).await?;
        let text = text
            .ok_or_else(|| self.unreadable(format!("`{RELEASES}` names `{name}`, which does not exist")))?;
        let release = kusion::read(&text)
            .map_err(|error| self.unreadable(SharedError::from(error).context(format!("`{name}`"))))?;
        Ok(Some(NewestRelease {
            release,
            text,
            metadata,
        }))
    }

    /// Begins a release, so that Kusion begins no other one until it has ended. If `newest` is the same release, begun
    /// by an earlier run with the mark `left`, this call continues that release.
    ///
    /// # Errors
    /// Another program began it first, or the store fails.
    pub async fn begin(
        &self,
        release: &KusionRelease,
        phase: &str,
        newest: Option<&NewestRelease>,
        left: Option<&str>,
    ) -> Result<BegunRelease, ReleaseError> {
        let revision = release.revision;
        let begun = || ReleaseError::Begun {
            place: self.place(),
            revision,
        };
        let before = newest.map(NewestRelease::value).unwrap_or_default();
        let state = match &before["state"] {
            Value::Null => json!({ "resources": [] }),
            state => state.clone(),
        };
        let mark = release.mark.clone().unwrap_or_default();
        let document = ReleaseDocument::begun(release, phase, state);
        let text = document.text(&mark);
        let name = format!("{revision}.yaml");
        let key = self.key(&name);
        if self.store.create(&key, Bytes::from(text.clone())).await? == Created::Exists {
            let there = self.text(&name).await?.unwrap_or_default();
            let ours = left.into_iter().chain([mark.as_str()]);
            if !ours.into_iter().any(|mark| is_marked(&there, mark)) {
                return Err(begun());
            }
            self.store.replace(&key, Bytes::from(text.clone())).await?;
        }
        // The metadata is written after the release, so that the revision that it names always exists.
        let there = self.newest().await?;
        let seen = there.as_ref().map(|newest| newest.release.revision);
        let expected = newest.map(|newest| newest.release.revision);
        if seen != expected && seen != Some(revision) {
            return Err(begun());
        }
        if seen != Some(revision) {
            let metadata = there.map(|newest| newest.metadata).unwrap_or_else(|| json!({}));
            let metadata = with_release(metadata, release, phase);
            let text = yaml::to_string(&metadata);
            self.store.replace(&self.key(RELEASES), Bytes::from(text)).await?;
        }
        // Kusion writes without conditions, so it may have replaced the release in the meantime.
        if self.text(&name).await?.as_deref() != Some(text.as_str()) {
            return Err(begun());
        }
        Ok(BegunRelease {
            key,
            text,
            document,
            mark,
            revision,
            spec_before: before["spec"].clone(),
        })
    }

    /// Ends a release with the wanted Spec and the resulting state, whose secrets must be masked.
    ///
    /// # Errors
    /// Another program wrote the release in the meantime, or the store fails.
    pub async fn end(
        &self,
        begun: BegunRelease,
        phase: &str,
        wanted: &[Resource],
        state: &[Recorded],
    ) -> Result<(), ReleaseError> {
        let there = self.store.get(&begun.key).await?;
        if there.as_deref() != Some(begun.text.as_bytes()) {
            return Err(ReleaseError::Changed {
                place: self.place(),
                revision: begun.revision,
            });
        }
        let document = begun.document.ended(phase, wanted, state, &begun.spec_before);
        let text = document.text(&begun.mark);
        Ok(self.store.replace(&begun.key, Bytes::from(text)).await?)
    }
}

/// Returns Kusion's metadata with this release added.
fn with_release(mut metadata: Value, release: &KusionRelease, phase: &str) -> Value {
    let entry = json!({"revision": release.revision, "stack": release.stack, "phase": phase});
    let mut entries = metadata["releaseMetaDatas"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    entries.push(entry);
    metadata["latestRevision"] = json!(release.revision);
    metadata["releaseMetaDatas"] = Value::Array(entries);
    metadata
}

#[cfg(test)]
#[path = "kusion_releases_tests.rs"]
mod tests;
