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
    /// An apply was stopped by a policy or a freeze. A receiver without this event gets `apply-failed`.
    Denied,
    /// A stack was applied although a policy set denied it, because somebody overrode the finding.
    Overridden,
    /// A hook around a change failed, and nothing else did. A receiver without this event gets `apply-failed`.
    HookFailed,
    /// A secret has a new version: an apply wrote it, or a drift check found it.
    SecretRotated,
    /// A stack waits for somebody: to promote a paused rollout, to approve its wave, or to resume its rollout.
    Waiting,
    /// A wave of a rollout failed. A receiver without this event gets `apply-failed`.
    RolloutFailed,
    /// The stacks of a failed wave have what they had before.
    RolledBack,
}

impl NotifyEvent {
    /// Returns true if something failed or was stopped: only then people are mentioned.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::ApplyFailed | Self::Unreviewed | Self::Denied | Self::HookFailed | Self::RolloutFailed
        )
    }

    /// Returns the more general event that a receiver gets instead, if it is not subscribed to this event.
    pub fn wider(self) -> Option<Self> {
        match self {
            Self::Denied | Self::HookFailed | Self::RolloutFailed => Some(Self::ApplyFailed),
            _ => None,
        }
    }
}
