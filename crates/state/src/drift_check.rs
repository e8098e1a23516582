//! [`DriftCheck`]: the last check of one stack for drift.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use konverge_base::model::{
    Digest,
    stack_look::{HealthCounts, StackLook},
};

/// The last check of one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCheck {
    /// The time of the check, by the clock of that machine. Recorded for a failed check too, so that the
    /// stack does not take the turn of another.
    pub at: Timestamp,
    /// The drift that is known; none if all was as applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<KnownDrift>,
    /// The health of the live objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCounts>,
    /// The differences and objects that were seen, for display. Only the drift history has them, so that the index
    /// stays short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<Box<StackLook>>,
}

impl DriftCheck {
    /// The check as the index has it.
    pub(super) fn for_index(self) -> Self {
        Self { look: None, ..self }
    }
}

/// A difference, and since when it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrift {
    /// The digest over the differences.
    pub digest: Digest,
    /// When a difference was first detected, in an unbroken sequence of checks.
    pub since: Timestamp,
}
