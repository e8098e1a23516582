//! Keys of Google Cloud KMS that wrap small secrets.
//!
//! <https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys>

use async_trait::async_trait;
use serde_json::Value;

use super::{
    SecretProblem,
    bearer_client::{BearerClient, url_of},
    json_cipher::JsonCipher,
};
use crate::GoogleLogin;
use konverge_secrets::Secrets;

const ADDRESS: &str = "https://cloudkms.googleapis.com";
const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";

/// A symmetric key of Google Cloud KMS.
pub struct GoogleKmsKey {
    /// The resource name, `projects/P/locations/L/keyRings/R/cryptoKeys/K`.
    pub(super) name: String,
    address: String,
    login: GoogleLogin,
    client: BearerClient,
}

impl GoogleKmsKey {
    /// Creates the key. `address` is that of a private endpoint. The tokens of its logins are added to
    /// `secrets`, which masks them.
    pub fn new(name: String, address: Option<String>, login: GoogleLogin, secrets: Secrets) -> Self {
        Self {
            name,
            address: address.unwrap_or_else(|| ADDRESS.to_owned()),
            login,
            client: BearerClient::new(secrets),
        }
    }
}

#[async_trait]
impl JsonCipher for GoogleKmsKey {
    const CONTEXT: &'static str = "additionalAuthenticatedData";

    async fn post(&self, method: &str, request: &Value) -> Result<Value, SecretProblem> {
        let last = format!("{}:{method}", self.name);
        let segments: Vec<_> = std::iter::once("v1").chain(last.split('/')).collect();
        let url = url_of(&self.address, &segments)?;
        let bearer = self.client.token(|| self.login.token(SCOPE)).await?;
        self.client.post(&url, &bearer, request).await
    }
}
