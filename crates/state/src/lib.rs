//! The data that is kept between runs in a [`Store`](crate::store::Store): state documents, leases, journals,
//! reviews and an index over them.
//!
//! Everything is based on *create if absent*. The state of a stack is a sequence of immutable documents,
//! numbered by serial. Its lease is a sequence of epochs, each with a sequence of renewals; its journal has
//! one sequence per epoch. A writer whose next number already exists has lost the lease: this is how an old
//! holder notices a takeover.
//!
//! ```text
//! stacks/<identity>/state/<serial>              the state; the highest serial counts
//! stacks/<identity>/lease/<epoch>/<renewal>     who may write; the highest epoch counts
//! stacks/<identity>/journal/<epoch>/<entry>     intents and results that no state document contains yet
//! reviews/<pull request>/<head>/<run>-<attempt> a review record of a preview; a shard adds `-<number>of<all>`
//! reviews/…/<run>-<attempt>.comment             the hash of the comment that showed denials
//! index/compaction/<n>                          input digest and summary of each stack, in place of all states
//! index/delta/<n>-<nonce>                       what changed since a compaction
//! freeze/<n>                                    the switch that stops all applies, with reasons
//! rollouts/<name>/<n>                           the progress of a rollout; the highest number counts
//! portal/audit/<time>-<nonce>                   what was requested in the portal; `.outcome` beside it has the result
//! looks/<n>                                     the drift history: the last check of each stack
//! keys/review                                   the key of the short hashes of secrets
//! keys/data/<n>                                 the key of encrypted documents, wrapped by key services
//! set/used/<hash>                               the tokens with which other repositories requested an edit
//! rekey/<key>                                   the copy of a document that is being encrypted again
//! ```

mod clock;
mod data_keys;
mod document_format;
mod document_mark;
mod drift_check;
mod drift_history;
mod encryption;
mod error;
#[cfg(test)]
mod fixture;
mod freeze;
mod hash_key;
mod index;
mod index_entry;
mod journal;
mod key_service;
mod keys;
pub mod kusion;
mod kusion_release;
pub mod kusion_releases;
mod lease;
mod lease_acquire;
mod lease_fencing;
mod lease_holder;
mod lease_options;
mod portal_requests;
mod proof;
mod rekey;
mod reviews;
mod rollouts;
mod sealed_box;
mod stack_reading;
mod stack_summary;
mod state_document;
mod state_store;
pub mod store;

use serde::{Deserialize, Serialize};

pub use clock::{Clock, SystemClock};
pub use data_keys::{KeyServiceTrial, WrappedDataKey};
pub use drift_check::{DriftCheck, KnownDrift};
pub use drift_history::{DriftHistory, DriftWeek};
pub use encryption::{IDENTITY_VARIABLE, Sealer};
pub use error::StateError;
pub use freeze::{ApplyFreeze, FreezeReason};
pub use index_entry::{IndexEntry, IndexedRead, IndexedStates, IndexedSummary, StoppedApply};
pub use journal::{OpenIntents, merge_journal};
pub use key_service::{DataKeys, NamedKeyService};
pub use lease::Lease;
pub use lease_holder::Holder;
pub use lease_options::{LeaseOptions, LeaseWatch, WaitVerdict};
pub use portal_requests::{RecordedOutcome, RecordedRequest};
pub use proof::Proven;
pub use rekey::Sealing;
pub use reviews::{ReviewKey, ReviewStore};
pub use rollouts::StoredRollout;
pub use sealed_box::SealedBox;
pub use stack_reading::{StackDocuments, StackReading};
pub use stack_summary::StackSummary;
pub use state_document::{Versioned, WriteReason};
pub use state_store::{HistoryEntry, HistoryLine, SealScope, StateStore};

/// The repository of the states: `state.id` of `konverge.yaml`, or else the normalized URL of `origin`.
/// Documents of another repository are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RepositoryId(String);

impl RepositoryId {
    /// Creates an id from the configuration.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The run that wrote a document. Every document contains it, and a run that waits for a lease shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentWriter {
    /// The URL of the run, or `user@host` outside CI.
    pub run: String,
    /// The person or bot that started the run.
    pub actor: String,
}

impl std::fmt::Display for DocumentWriter {
    /// Shows the run and who started it. Outside CI the name of the run already begins with the user.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.run.strip_prefix(&self.actor) {
            Some(rest) if rest.starts_with('@') => f.write_str(&self.run),
            _ => write!(f, "{} ({})", self.run, self.actor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_shown_as_its_run_and_who_started_it_and_a_user_once() {
        for (run, actor, shown) in [
            ("https://ci.example/1", "ada", "https://ci.example/1 (ada)"),
            ("ada@laptop", "ada", "ada@laptop"),
            ("adamant@laptop", "ada", "adamant@laptop (ada)"),
            ("ada", "ada", "ada (ada)"),
        ] {
            let writer = DocumentWriter {
                run: run.to_owned(),
                actor: actor.to_owned(),
            };
            assert_eq!(writer.to_string(), shown);
        }
        assert_eq!(RepositoryId::new("acme/infra").as_str(), "acme/infra");
    }
}
