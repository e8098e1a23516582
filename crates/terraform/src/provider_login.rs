//! [`ProviderLogin`]: an identity for the providers of a stack that replaces the job's own.

use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use konverge_base::error::UserError;

/// An identity for the providers of some stacks.
#[async_trait]
pub trait ProviderLogin: std::fmt::Debug + Send + Sync {
    /// Returns true for a variable of the job that the providers must not see.
    fn hides(&self, variable: &str) -> bool;

    /// Returns the credentials of the providers. They are valid for at least some minutes.
    ///
    /// # Errors
    /// The job has no identity, or a cloud refuses it.
    async fn credentials(&self) -> Result<ProviderCredentials, UserError>;

    /// Returns hints for an error of a provider whose credentials expired while it ran: the login, its
    /// identity, the job's identity, and what to do.
    async fn expiry_hints(&self) -> Vec<String>;
}

/// Credentials of the providers of one process.
#[derive(Clone)]
pub struct ProviderCredentials {
    /// Names and values of the environment variables.
    pub variables: Vec<(String, String)>,
    /// Remaining lifetime; `None` if the credentials do not expire.
    pub lifetime: Option<Duration>,
}

/// The variables of one process that only its providers read, and when their credentials expire.
pub(super) struct ProcessCredentials {
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) expires: Option<Instant>,
}
