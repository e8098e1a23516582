//! [`ProviderLogin`]: who the providers of a stack are, in the place of the job's own identity.

use async_trait::async_trait;

use konverge_base::error::UserError;

/// The identity of the providers of some stacks.
#[async_trait]
pub trait ProviderLogin: std::fmt::Debug + Send + Sync {
    /// Returns true for a variable of the job that the providers must not see.
    fn hides(&self, variable: &str) -> bool;

    /// The variables that log the providers in. Their credentials are still valid for some minutes.
    ///
    /// # Errors
    /// The job has no identity, or a cloud refuses it.
    async fn variables(&self) -> Result<Vec<(String, String)>, UserError>;
}
