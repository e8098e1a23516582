//! [`AccessToken`]: a token, and how long it is valid.

use std::time::Duration;

/// A token, and how long it is valid.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The token itself.
    pub bearer: String,
    /// How long it is valid.
    pub lifetime: Duration,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}
