//! What a login returns: [`AccessToken`] or [`AccessKeys`].

use std::time::Duration;

use jiff::Timestamp;
use zeroize::Zeroizing;

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

/// The keys of an account or of a role, which may expire.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKeys {
    /// The public half of the key.
    pub access_key: String,
    /// The secret half of the key.
    pub secret_key: Zeroizing<String>,
    /// The token of a temporary key.
    pub session_token: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKeys").finish_non_exhaustive()
    }
}

impl AccessKeys {
    /// Returns the keys of the values of variables; `None` without both halves.
    pub(super) fn from_values(
        access: Option<&str>,
        secret: Option<&str>,
        token: Option<&str>,
    ) -> Option<Self> {
        let protect = |value: &str| Zeroizing::new(value.to_owned());
        Some(Self {
            access_key: access?.to_owned(),
            secret_key: protect(secret?),
            session_token: token.map(protect),
        })
    }
}

/// Returns the time until credentials expire; an hour if the response does not state it.
pub(super) fn remaining(expiration: Option<&str>) -> Duration {
    let end = expiration.and_then(|text| text.parse::<Timestamp>().ok());
    end.map_or(Duration::from_secs(3600), |end| {
        Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default()
    })
}
