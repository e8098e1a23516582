//! [`DriftCheck`]: the last drift check of one stack.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use konverge_base::model::{
    Digest,
    stack_look::{HealthCounts, StackLook},
};

/// The last drift check of one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCheck {
    /// The time of the check by the checking machine's clock. A failed check is recorded too, so that the
    /// stack is not checked again before others.
    pub at: Timestamp,
    /// The known drift; `None` if the live objects were as applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<KnownDrift>,
    /// The health of the live objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCounts>,
    /// The differences and objects that the check saw, for display. Only the drift history contains them, so
    /// that the index stays short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<Box<StackLook>>,
}

impl DriftCheck {
    /// Returns the check without `look`, for the index.
    pub(super) fn for_index(self) -> Self {
        Self { look: None, ..self }
    }
}

/// A known drift, and the time since when it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrift {
    /// The digest of the differences.
    pub digest: Digest,
    /// The time of the first of the consecutive checks that found drift.
    pub since: Timestamp,
}
