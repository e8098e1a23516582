//! What is remembered between runs, in a [`Store`](crate::store::Store): state documents, leases, journals, reviews and
//! an index over them.
//!
//! Everything rests on *create if absent*. A stack's state is a row of immutable documents by serial; its lease is a
//! row by epoch, each epoch a row of renewals; its journal a row by epoch. Whoever adds to the end of a row and finds
//! the place taken by another has lost: that is how an old holder learns that it was taken over.
//!
//! ```text
//! stacks/<identity>/state/<serial>              what is recorded; the highest serial counts
//! stacks/<identity>/lease/<epoch>/<renewal>     who may write; the highest epoch counts
//! stacks/<identity>/journal/<epoch>/<entry>     intents and results that no state document holds yet
//! reviews/<pull request>/<head>/<run>-<attempt> what was previewed; of a share `-<number>of<all>` behind it
//! index/compaction/<n>, index/delta/<n>-<nonce> input digest per stack, so that nobody reads every state
//! looks/<n>                                     when each stack was looked at for drift
//! keys/review                                   the key of the short hashes of secrets
//! ```

mod lease_acquire;
mod clock;
mod state_document;
mod document_format;
mod error;
mod index;
mod journal;
mod crypto;
pub mod kusion;
mod lease;
mod drift_history;
mod reviews;
mod keys;
mod state_store;
mod lease_fencing;
mod sealed_box;

use serde::{Deserialize, Serialize};

pub use lease_acquire::{Holder, LeaseOptions, LeaseWatch, WaitVerdict};
pub use clock::{Clock, SystemClock};
pub use state_document::{Reason, Versioned};
pub use error::StateError;
pub use index::{Entry, Known};
pub use journal::{OpenIntents, merge_journal};
pub use crypto::{IDENTITY_VARIABLE, Sealer};
pub use lease::Lease;
pub use drift_history::{Look, Looks, Seen};
pub use reviews::{ReviewKey, Reviews};
pub use state_store::{HistoryEntry, HistoryLine, States};
pub use sealed_box::Vault;

/// Whose states these are: `state.id` of `konverge.yaml`, else the normalised URL of `origin`. A document of another
/// repository is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RepositoryId(String);

impl RepositoryId {
    /// An id as it stands in the configuration.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who writes: stands in every document, and is shown to whoever waits for a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The run's URL, or `user@host` outside CI.
    pub run: String,
    /// The person or bot that started it.
    pub actor: String,
}

impl std::fmt::Display for Writer {
    /// The run and who started it; outside CI the run's own name begins with that.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.run.strip_prefix(&self.actor) {
            Some(rest) if rest.starts_with('@') => f.write_str(&self.run),
            _ => write!(f, "{} ({})", self.run, self.actor),
        }
    }
}
