//! The format of every document, in three lines: a checksum over the rest, a header, a body.
//!
//! ```text
//! {"konverge":1,"checksum":"<BLAKE3 of everything after this line>","marks":[…]}
//! {"kind":"state","repository":"…","nonce":"…","writer":{…},"time":"…","sealed":false}
//! {…}
//! ```
//!
//! The checksum covers bytes, not values, so that it does not depend on the notation of numbers. An encrypted
//! body is `{"age":"<base64>"}`. If states are encrypted, every document has marks, keyed hashes over its key
//! in the store and everything after the first line (`document_mark.rs`). [`Documents::read`] returns only
//! documents with a mark of a known key.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use base64::Engine as _;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{
    DocumentWriter, RepositoryId, Sealer, StateError, document_mark::DocumentMark, encryption::key_error,
};
use crate::store::{Created, Key, Store, StoreError};
use konverge_base::{
    error::{SharedError, chain},
    model::Digest,
};

/// The format version that this program writes.
const FORMAT: u64 = 1;
/// The kinds of documents that are encrypted. Other kinds contain only names, digests and masked values, and have only
/// marks (keyed hashes) of their writers.
const SEALED_KINDS: [&str; 3] = ["state", "journal", "key"];
/// The kind of documents that have no mark: unwrapping a data key proves that it belongs to its recipient.
const DATA_KEY: &str = "data-key";
/// Maximum number of repetitions of a create with an unclear result, on top of the store's own retries.
const UNCLEAR_CREATES: u32 = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub kind: String,
    pub repository: RepositoryId,
    pub nonce: String,
    pub writer: DocumentWriter,
    pub time: Timestamp,
    #[serde(default)]
    pub sealed: bool,
    /// The recipients who can decrypt the document, sorted. Empty if it is not encrypted, or of an earlier
    /// version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct BodySeal {
    konverge: u64,
    checksum: Digest,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    marks: Vec<DocumentMark>,
}

#[derive(Serialize, Deserialize)]
struct SealedBody {
    age: String,
}

/// The possible causes of a missing mark, for messages.
const FOREIGN: &str = "it was written before Konverge marked documents (see `state.accept_unmarked_until`), or by somebody who can write to the store but holds no key of `state.encrypt_to`";

/// The settings that all documents of one run share.
#[derive(Clone)]
pub(super) struct Documents {
    pub repository: RepositoryId,
    pub writer: DocumentWriter,
    pub sealer: Option<Sealer>,
    /// True if whole documents are encrypted, false if only the runtimes' data in them is.
    pub seal_documents: bool,
    /// True to also read documents without a mark, and unencrypted documents of kinds that are now encrypted.
    pub accept_unmarked: bool,
    /// Reports each document that is skipped because it has no mark.
    pub skipped: SkippedDocuments,
}

/// Receives a message about each skipped document.
type SkippedObserver = dyn Fn(&str) + Send + Sync;

/// Reports each skipped document once.
#[derive(Clone, Default)]
pub(super) struct SkippedDocuments {
    named: Arc<Mutex<BTreeSet<String>>>,
    observer: Option<Arc<SkippedObserver>>,
}

impl SkippedDocuments {
    pub(super) fn with_observer(observer: Arc<SkippedObserver>) -> Self {
        Self {
            observer: Some(observer),
            ..Self::default()
        }
    }

    fn add(&self, key: &Key, error: &StateError) {
        let is_new = self
            .named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.to_string());
        if let Some(observer) = self.observer.as_ref().filter(|_| is_new) {
            observer(&chain(error));
        }
    }
}

/// A document with a valid checksum.
struct Opened<'a> {
    marks: Vec<DocumentMark>,
    header: Header,
    body: &'a [u8],
    /// The bytes that the marks cover: header and body.
    marked: &'a [u8],
}

/// A document that is ready to be written.
pub(super) struct OutgoingDocument {
    pub nonce: String,
    /// The time in the header of the document.
    pub time: Timestamp,
    pub bytes: Bytes,
}

/// The result of a create: who wrote the document that is now stored.
pub(super) enum CreateResult {
    /// This process wrote the document, as its nonce shows.
    Ours,
    /// Another writer wrote the document. Holds its content.
    Theirs(Bytes),
}

impl Documents {
    /// Builds a document from a body.
    pub(crate) fn write<T: Serialize>(
        &self,
        kind: &str,
        key: &Key,
        time: Timestamp,
        body: &T,
    ) -> Result<OutgoingDocument, StateError> {
        let nonce = Uuid::new_v4().simple().to_string();
        let header = Header {
            kind: kind.to_owned(),
            repository: self.repository.clone(),
            nonce: nonce.clone(),
            writer: self.writer.clone(),
            time,
            sealed: false,
            recipients: Vec::new(),
        };
        Ok(OutgoingDocument {
            nonce,
            time,
            bytes: self.compose(key, header, to_json(body))?,
        })
    }

    /// Writes header and body, and encrypts and marks them if that applies to the kind.
    fn compose(&self, key: &Key, mut header: Header, plain: String) -> Result<Bytes, StateError> {
        header.sealed = self.seals(&header.kind);
        header.recipients = Vec::new();
        let body = match (&self.sealer, header.sealed) {
            (_, false) => plain,
            (None, true) => {
                let why = "this run has no key to encrypt it with";
                return Err(key_error(&format!("a document of kind `{}`", header.kind), why));
            }
            (Some(sealer), true) => {
                header.recipients = sealer.recipients();
                to_json(&SealedBody {
                    age: base64::engine::general_purpose::STANDARD.encode(sealer.seal(plain.as_bytes())?),
                })
            }
        };
        let rest = format!("{}\n{body}\n", to_json(&header));
        let marks = match (self.marks(&header.kind), &self.sealer) {
            (false, _) => Vec::new(),
            (true, Some(sealer)) => sealer.mark(key, rest.as_bytes())?,
            (true, None) => {
                let why = "this run has no key to mark it with";
                return Err(key_error(&format!("a document of kind `{}`", header.kind), why));
            }
        };
        let first = to_json(&BodySeal {
            konverge: FORMAT,
            checksum: Digest::of_bytes(rest.as_bytes()),
            marks,
        });
        Ok(Bytes::from(format!("{first}\n{rest}")))
    }

    /// Returns true if documents of a kind are encrypted.
    fn seals(&self, kind: &str) -> bool {
        self.seal_documents && SEALED_KINDS.contains(&kind)
    }

    /// Returns true if documents of a kind are marked.
    fn marks(&self, kind: &str) -> bool {
        self.seal_documents && kind != DATA_KEY
    }

    /// Returns the header of a document of any kind. It is never encrypted, and its writer is not verified
    /// here.
    pub(crate) fn header(&self, key: &Key, bytes: &[u8]) -> Result<Header, StateError> {
        Ok(open(key, bytes)?.header)
    }

    /// Returns true if a document has the protection that this run would write: encrypted and marked for
    /// exactly its recipients, by the holder of a key.
    pub(crate) fn is_current(&self, key: &Key, bytes: &[u8]) -> Result<bool, StateError> {
        let opened = open(key, bytes)?;
        let Some(sealer) = &self.sealer else {
            return Ok(false);
        };
        let recipients = sealer.recipients();
        let is_sealed_right = if self.seals(&opened.header.kind) {
            opened.header.sealed && opened.header.recipients == recipients
        } else {
            !opened.header.sealed
        };
        let has_reader = |name: &String| opened.marks.iter().any(|mark| mark.reader == *name);
        Ok(is_sealed_right
            && recipients.iter().all(has_reader)
            && sealer.check_marks(key, opened.marked, &opened.marks).is_ok())
    }

    /// Returns true if a document has the mark of a known key. `None` if this run has no key.
    pub(crate) fn is_marked(&self, key: &Key, bytes: &[u8]) -> Option<bool> {
        let opened = open(key, bytes).ok()?;
        let sealer = self.sealer.as_ref().filter(|sealer| sealer.has_age_key())?;
        Some(sealer.check_marks(key, opened.marked, &opened.marks).is_ok())
    }

    /// Returns the document for the key `to`, encrypted and marked for this run's recipients. `change` edits
    /// the body first.
    pub(crate) fn reseal(
        &self,
        from: &Key,
        to: &Key,
        bytes: &[u8],
        change: impl FnOnce(&mut serde_json::Value) -> Result<(), StateError>,
    ) -> Result<Bytes, StateError> {
        let kind = self.header(from, bytes)?.kind;
        let (header, mut body): (_, serde_json::Value) = self.read(&kind, from, bytes)?;
        change(&mut body)?;
        self.compose(to, header, to_json(&body))
    }

    /// Reads a document like [`Documents::read`], but returns `None` for a document without a mark and
    /// reports it as skipped.
    pub(crate) fn read_marked<T: DeserializeOwned>(
        &self,
        kind: &str,
        key: &Key,
        bytes: &[u8],
    ) -> Result<Option<(Header, T)>, StateError> {
        match self.read(kind, key, bytes) {
            Err(error @ StateError::Unmarked { .. }) => {
                self.skipped.add(key, &error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Parses and validates a document, and checks its marks.
    ///
    /// # Errors
    /// [`StateError::Unmarked`] for a document without a mark of a known key; [`StateError::Damaged`] for
    /// such a document of an encrypted kind.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        kind: &str,
        key: &Key,
        bytes: &[u8],
    ) -> Result<(Header, T), StateError> {
        let damaged = |why: SharedError| StateError::damaged(key, why);
        // The marks are checked first. Otherwise somebody without a key could stop a run with a damaged
        // document.
        if !SEALED_KINDS.contains(&kind) {
            let (marks, marked) = marks(bytes);
            self.check_writer(kind, key, &marks, marked)?;
        }
        let opened = open(key, bytes)?;
        let header = &opened.header;
        if header.kind != kind {
            let kind_there = header.kind.escape_debug();
            return Err(damaged(
                format!("it is a document of kind `{kind_there}`, not `{kind}`").into(),
            ));
        }
        if header.repository != self.repository {
            return Err(StateError::Foreign {
                key: key.to_string(),
                theirs: header.repository.as_str().escape_debug().to_string(),
                ours: self.repository.as_str().to_owned(),
            });
        }
        let unreadable = |error: serde_json::Error| {
            damaged(SharedError::from(error).context(format!("its body is not that of a {kind} document")))
        };
        if !header.sealed {
            if self.seals(kind) && !self.accept_unmarked {
                return Err(damaged(format!("it is not encrypted; {FOREIGN}").into()));
            }
            let body = serde_json::from_slice(opened.body).map_err(unreadable)?;
            return Ok((opened.header, body));
        }
        let sealed_error = |why: SharedError| StateError::Sealed {
            what: format!("`{key}` is encrypted"),
            why,
        };
        let sealer = self
            .sealer
            .as_ref()
            .ok_or_else(|| sealed_error("this run has no key to decrypt it".into()))?;
        let sealed: SealedBody = serde_json::from_slice(opened.body).map_err(unreadable)?;
        let cipher = base64::engine::general_purpose::STANDARD
            .decode(sealed.age)
            .map_err(|error| damaged(error.into()))?;
        let plain = sealer.open(&cipher).map_err(|error| sealed_error(error.into()))?;
        // That a document can be decrypted proves nothing about its writer: everybody who knows the
        // recipients can encrypt. So its mark is checked, too.
        self.check_writer(kind, key, &opened.marks, opened.marked)?;
        let body = serde_json::from_slice(&plain).map_err(unreadable)?;
        Ok((opened.header, body))
    }

    /// Checks that a document has the mark of a known key, if its kind is marked.
    fn check_writer(
        &self,
        kind: &str,
        key: &Key,
        marks: &[DocumentMark],
        marked: &[u8],
    ) -> Result<(), StateError> {
        if !self.marks(kind) || self.accept_unmarked {
            return Ok(());
        }
        let sealer = self.sealer.as_ref().filter(|sealer| sealer.has_age_key());
        let Some(sealer) = sealer else {
            return Err(StateError::Sealed {
                what: format!("it is unknown who wrote `{key}`"),
                why: "this run has no key to check the mark of the document with".into(),
            });
        };
        let checked = sealer.check_marks(key, marked, marks);
        checked.map_err(|why| {
            let (key, why) = (key.to_string(), format!("{why}; {FOREIGN}").into());
            if SEALED_KINDS.contains(&kind) {
                StateError::Damaged { key, why }
            } else {
                StateError::Unmarked { key, why }
            }
        })
    }
}

/// Creates a document. If the result is unclear, finds out whose document is stored: a lost response may have
/// been a success, and some stores report *exists* although no create succeeded.
pub(super) async fn put(
    store: &dyn Store,
    key: &Key,
    letter: &OutgoingDocument,
) -> Result<CreateResult, StateError> {
    let mut last = None;
    for _ in 0..UNCLEAR_CREATES {
        match store.create(key, letter.bytes.clone()).await {
            Ok(Created::Created) => return Ok(CreateResult::Ours),
            Ok(Created::Exists) => match store.get(key).await {
                // An earlier attempt of this call, whose response was lost, has succeeded.
                Ok(Some(there)) if nonce_of(&there).as_deref() == Some(&letter.nonce) => {
                    return Ok(CreateResult::Ours);
                }
                Ok(Some(there)) => return Ok(CreateResult::Theirs(there)),
                // There is no document, so no other writer succeeded: try again.
                Ok(None) => {}
                Err(error) => last = Some(error),
            },
            Err(error @ StoreError::Unavailable { .. }) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last
        .unwrap_or_else(|| StoreError::Unavailable {
            url: store.url().to_owned(),
            key: key.to_string(),
            why: "it is listed but cannot be read".into(),
        })
        .into())
}

fn nonce_of(bytes: &[u8]) -> Option<String> {
    let header = bytes.split(|byte| *byte == b'\n').nth(1)?;
    let header: Header = serde_json::from_slice(header).ok()?;
    Some(header.nonce)
}

/// Splits a document into its marks and the bytes that they cover. The input may be any bytes.
fn marks(bytes: &[u8]) -> (Vec<DocumentMark>, &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let seal: Option<BodySeal> = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    let marks = seal.map(|seal| seal.marks).unwrap_or_default();
    (marks, lines.next().unwrap_or_default())
}

/// Validates format and checksum, and splits the document into its lines.
fn open<'a>(key: &Key, bytes: &'a [u8]) -> Result<Opened<'a>, StateError> {
    let damaged = |why: &str| StateError::damaged(key, why);
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let first: serde_json::Value = lines
        .next()
        .and_then(|line| serde_json::from_slice(line).ok())
        .ok_or_else(|| damaged("its first line is not the header of a Konverge document"))?;
    let version = first
        .get("konverge")
        .and_then(serde_json::Value::as_u64)
        .ok_or_else(|| damaged("its first line is not the header of a Konverge document"))?;
    if version == 0 {
        return Err(damaged("format 0 does not exist"));
    }
    if version > FORMAT {
        return Err(StateError::Future {
            key: key.to_string(),
            version,
        });
    }
    let seal: BodySeal =
        serde_json::from_value(first).map_err(|_| damaged("its first line holds no checksum"))?;
    let rest = lines.next().unwrap_or_default();
    if Digest::of_bytes(rest) != seal.checksum {
        return Err(damaged("its checksum does not match: it was truncated or edited"));
    }
    let mut lines = rest.splitn(2, |byte| *byte == b'\n');
    let header = lines.next().unwrap_or_default();
    Ok(Opened {
        marks: seal.marks,
        header: serde_json::from_slice(header).map_err(|_| damaged("its header cannot be read"))?,
        body: lines.next().unwrap_or_default(),
        marked: rest,
    })
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our documents have string keys and no failing serializers")
}

#[cfg(test)]
#[path = "document_format_tests.rs"]
mod tests;
