//! Keys of Google Cloud KMS that wrap small secrets.
//!
//! <https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys>

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    KeyService, SecretProblem,
    bearer_client::{BearerClient, url_of},
    secret_document::{secret_in, text_in, zeroize_json},
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

    /// Unwraps a secret that another program wrapped without a context.
    ///
    /// # Errors
    /// The errors of [`KeyService::unwrap_key`].
    pub async fn unwrap_without_context(&self, wrapped: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        self.decrypt(&json!({"ciphertext": wrapped})).await
    }

    async fn decrypt(&self, request: &Value) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        secret_in(self.post("decrypt", request).await?, "plaintext")
    }

    async fn post(&self, method: &str, request: &Value) -> Result<Value, SecretProblem> {
        let last = format!("{}:{method}", self.name);
        let segments: Vec<_> = std::iter::once("v1").chain(last.split('/')).collect();
        let url = url_of(&self.address, &segments)?;
        let bearer = self.client.token(|| self.login.token(SCOPE)).await?;
        self.client.post(&url, &bearer, request).await
    }
}

#[async_trait]
impl KeyService for GoogleKmsKey {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = json!({
            "plaintext": STANDARD.encode(secret),
            "additionalAuthenticatedData": STANDARD.encode(context),
        });
        let answer = self.post("encrypt", &request).await;
        zeroize_json(&mut request);
        text_in(&answer?, "ciphertext")
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let data = STANDARD.encode(context);
        self.decrypt(&json!({"ciphertext": wrapped, "additionalAuthenticatedData": data}))
            .await
    }
}
