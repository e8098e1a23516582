//! [`ProviderLogin`]: who the providers of a stack are, in the place of the job's own identity.

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use konverge_base::error::UserError;

/// The identity of the providers of some stacks.
#[async_trait]
pub trait ProviderLogin: std::fmt::Debug + Send + Sync {
    /// Returns true for a variable of the job that the providers must not see.
    fn hides(&self, variable: &str) -> bool;

    /// Returns the credentials of the providers. They are still valid for some minutes.
    ///
    /// # Errors
    /// The job has no identity, or a cloud refuses it.
    async fn credentials(&self) -> Result<ProviderCredentials, UserError>;

    /// The hints for an error of a provider whose credentials expired while it ran: the login, its identity, the subject of
    /// the job, and what to do.
    async fn expiry_hints(&self) -> Vec<String>;
}

/// Credentials of the providers of one process.
#[derive(Clone)]
pub struct ProviderCredentials {
    /// The variables.
    pub variables: Vec<(String, String)>,
    /// Time for which they are valid; `None` if they do not expire.
    pub lifetime: Option<Duration>,
}

/// The variables of one process that only its providers read, and when their credentials expire.
pub(super) struct ProcessCredentials {
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) expires: Option<Instant>,
}

impl ProcessCredentials {
    /// Returns true if a process that ends now had no valid credentials at its end.
    pub(super) fn have_expired(&self) -> bool {
        self.expires.is_some_and(|end| end <= Instant::now())
    }
}
