//! [`LeaseDocument`]: one place in the row of a lease.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The body of `stacks/<identity>/lease/<epoch>/<renewal>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub(super) enum LeaseDocument {
    /// Taken or renewed.
    Held {
        id: String,
        term_ms: u64,
        since: Timestamp,
        /// The newest serial when it was taken. A lease of an earlier version has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<u64>,
    },
    /// Released without a state document of its own.
    Released,
    /// Ended by the holder of a later epoch.
    TakenOver { by: u64 },
    /// Ended by a person.
    Unlocked { reason: String },
}
