//! [`HealthVerdict`]: the health of an object, the reason, and how a wait treats it.

use konverge_base::model::{apply_result::Waiting, health::Health};

/// Treatment of a verdict by a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Final: a failure is the final result of the controller.
    Final,
    /// A failure that waiting does not fix (an image that does not exist): it counts once it has lasted.
    Blocked,
    /// A failure that may resolve itself (a crash loop, a node that is still to come): it is shown, and the
    /// wait continues.
    Transient,
    /// Only shown; a wait ignores it.
    Advisory,
    /// The verdict is about a change of another object, such as the target of a Canary: a wait for this object
    /// ignores it, and a status shows it.
    Indirect,
    /// The object waits for something outside of the cluster's own work: a wait ends without it being ready.
    Waiting(Waiting),
}

/// The result of [`assess`](super::assess).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthVerdict {
    /// The health of the object.
    pub health: Health,
    /// The reason for people; may be empty. Contains text from the cluster: escape it before printing.
    pub message: String,
    /// The way in which a wait treats it.
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
