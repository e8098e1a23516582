//! What somebody may be told of outside GitHub.

use serde::{Deserialize, Serialize};

/// What a notification is about: the words of `notify[].on`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NotifyEvent {
    /// An apply failed, for some stack at least.
    ApplyFailed,
    /// An apply ended well.
    ApplyDone,
    /// A stack differs from what was applied.
    Drift,
    /// A merge was stopped because nobody reviewed a part of it.
    Unreviewed,
}
