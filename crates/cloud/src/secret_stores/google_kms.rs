//! Keys of Google Cloud KMS that wrap small secrets.
//!
//! <https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys>

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    SecretProblem,
    bearer_client::{BearerClient, url_of},
    http::unexpected,
    secret_document::zeroize_json,
};
use crate::GoogleLogin;
use konverge_base::secrets::Secrets;

const ADDRESS: &str = "https://cloudkms.googleapis.com";
const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";

/// A symmetric key.
pub struct GoogleKmsKey {
    /// `projects/P/locations/L/keyRings/R/cryptoKeys/K`.
    name: String,
    address: String,
    login: GoogleLogin,
    client: BearerClient,
}

impl GoogleKmsKey {
    /// `address` is for a private endpoint. `secrets` learns the tokens of logins.
    pub fn new(name: String, address: Option<String>, login: GoogleLogin, secrets: Secrets) -> Self {
        Self {
            name,
            address: address.unwrap_or_else(|| ADDRESS.to_owned()),
            login,
            client: BearerClient::new(secrets),
        }
    }

    /// Wraps a secret. The same context is needed to unwrap it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = json!({
            "plaintext": STANDARD.encode(secret),
            "additionalAuthenticatedData": STANDARD.encode(context),
        });
        let answer = self.post("encrypt", &request).await;
        zeroize_json(&mut request);
        let wrapped = answer?["ciphertext"].as_str().map(str::to_owned);
        wrapped.ok_or_else(|| unexpected("the answer has no `ciphertext`"))
    }

    /// Unwraps what [`GoogleKmsKey::wrap_key`] gave.
    ///
    /// # Errors
    /// As [`GoogleKmsKey::wrap_key`]; it was wrapped by another key, or with another context.
    pub async fn unwrap_key(
        &self,
        wrapped: &str,
        context: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let request = json!({
            "ciphertext": wrapped,
            "additionalAuthenticatedData": STANDARD.encode(context),
        });
        self.decrypt(&request).await
    }

    /// Unwraps what another program wrapped, without a context.
    ///
    /// # Errors
    /// As [`GoogleKmsKey::unwrap_key`].
    pub async fn unwrap_without_context(&self, wrapped: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        self.decrypt(&json!({"ciphertext": wrapped})).await
    }

    async fn decrypt(&self, request: &Value) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let mut answer = self.post("decrypt", request).await?;
        let secret = answer["plaintext"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok());
        zeroize_json(&mut answer);
        let secret = secret.ok_or_else(|| unexpected("the answer has no `plaintext` in base64"))?;
        Ok(Zeroizing::new(secret))
    }

    async fn post(&self, method: &str, request: &Value) -> Result<Value, SecretProblem> {
        let last = format!("{}:{method}", self.name);
        let segments: Vec<_> = std::iter::once("v1").chain(last.split('/')).collect();
        let url = url_of(&self.address, &segments)?;
        let bearer = self.client.token(|| self.login.token(SCOPE)).await?;
        self.client.post(&url, &bearer, request).await
    }
}
