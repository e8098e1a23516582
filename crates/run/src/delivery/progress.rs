//! What a controller says of a delivery: how far it is, and why its objects do not deliver a stack.

/// How far a controller is with a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryProgress {
    /// It applied the revision, and what it applied is healthy.
    Healthy,
    /// It is not there yet: what it says.
    Waiting(String),
    /// It gave up: what it says.
    Failed(String),
}

/// Why an object of a controller does not deliver a stack, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryProblem {
    pub what: String,
    /// `None`: the object is written again.
    pub remedy: Option<String>,
}

impl DeliveryProblem {
    pub(super) fn new(what: impl Into<String>, remedy: &str) -> Self {
        Self {
            what: what.into(),
            remedy: Some(remedy.to_owned()),
        }
    }

    /// It reads something else.
    pub(super) fn other_source(found: &str, ours: &str) -> Self {
        Self {
            what: format!(
                "it reads `{}`, and this stack is pushed to `{ours}`",
                found.escape_debug()
            ),
            remedy: None,
        }
    }
}
