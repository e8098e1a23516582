//! `apply.conflicts`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens if another field manager owns a field that the Spec sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Conflicts")]
pub enum ConflictsConfig {
    /// A field that the last apply wrote is restored, as `policy.drift` says. For any other field the
    /// resource fails, and the error names the owner.
    #[default]
    Restore,
    /// The value of the Spec is written, and Konverge takes over the field.
    #[serde(alias = "take")]
    Write,
    /// The field keeps the value of its owner; also one that the last apply wrote.
    Leave,
    /// The resource fails, and the error names the owner; also for a field that the last apply wrote.
    Stop,
}
