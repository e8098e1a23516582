//! [`AccessToken`]: a token and its lifetime.

use std::time::Duration;

/// A token and its lifetime.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The token itself.
    pub bearer: String,
    /// Time for which the token is valid.
    pub lifetime: Duration,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}
