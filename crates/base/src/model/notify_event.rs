//! The events that can be sent to systems outside GitHub.

use serde::{Deserialize, Serialize};

/// The events of a notification, as written in `notify[].on`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NotifyEvent {
    /// An apply failed for at least one stack.
    ApplyFailed,
    /// An apply succeeded.
    ApplyDone,
    /// A stack differs from what was applied.
    Drift,
    /// An apply was stopped because a part of the plan was not reviewed.
    Unreviewed,
}
