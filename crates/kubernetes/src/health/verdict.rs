//! [`HealthVerdict`]: the health of an object, the reason, and how a wait treats it.

use konverge_base::model::{apply_result::Waiting, health::Health};

/// The effect of a verdict on the wait for readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Final: a failure is the last result of the controller, and ends the wait.
    Final,
    /// A failure that waiting cannot fix, such as an image that does not exist. It ends the wait once it has
    /// lasted.
    Blocked,
    /// A failure that may resolve itself, such as a crash loop or a missing node. It is shown, and the wait
    /// continues.
    Transient,
    /// The verdict is only shown; a wait ignores it.
    Advisory,
    /// The verdict is about a change of another object, such as the target of a Canary. A wait for this
    /// object ignores it, but a status shows it.
    Indirect,
    /// The object waits for something that the cluster does not do by itself. The wait ends although the
    /// object is not ready.
    Waiting(Waiting),
}

/// The evaluated health of an object, as [`assess`](super::assess) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthVerdict {
    /// The health of the object.
    pub health: Health,
    /// The reason; may be empty. It contains text from the cluster, so it must be escaped before printing.
    pub message: String,
    /// The effect of the verdict on the wait for readiness.
    pub weight: WaitPolicy,
}

impl HealthVerdict {
    pub(super) fn new(health: Health, message: impl Into<String>) -> Self {
        Self {
            health,
            message: message.into(),
            weight: WaitPolicy::Final,
        }
    }

    pub(super) fn ready(message: impl Into<String>) -> Self {
        Self::new(Health::Ready, message)
    }

    pub(super) fn progressing(message: impl Into<String>) -> Self {
        Self::new(Health::Progressing, message)
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(Health::Failed, message)
    }

    pub(super) fn suspended(message: impl Into<String>) -> Self {
        Self::new(Health::Suspended, message)
    }

    pub(super) fn unknown(message: impl Into<String>) -> Self {
        Self::new(Health::Unknown, message)
    }

    pub(super) fn with_wait_policy(mut self, weight: WaitPolicy) -> Self {
        self.weight = weight;
        self
    }
}
