//! The transit engine of HashiCorp Vault and OpenBao: keys that wrap small secrets.
//!
//! <https://developer.hashicorp.com/vault/api-docs/secret/transit>

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{
    SecretProblem, SecretRights,
    http::unexpected,
    secret_document::zeroize_json,
    vault_client::{VaultClient, VaultServer},
};
use konverge_base::secrets::Secrets;

/// A key of a transit engine that encrypts and authenticates: `aes256-gcm96` or `chacha20-poly1305`.
pub struct VaultTransitKey {
    mount: String,
    key: String,
    client: VaultClient,
}

impl VaultTransitKey {
    /// `secrets` learns the tokens of logins.
    pub fn new((mount, key): (String, String), server: VaultServer, secrets: Secrets) -> Self {
        Self {
            mount,
            key,
            client: VaultClient::new(server, secrets),
        }
    }

    /// Wraps a secret. The same context is needed to unwrap it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = json!({
            "plaintext": STANDARD.encode(secret),
            "associated_data": STANDARD.encode(context),
        });
        let path = format!("{}/encrypt/{}", self.mount, self.key);
        let answer = self.post(&path, &request).await;
        zeroize_json(&mut request);
        let wrapped = answer?
            .get("ciphertext")
            .and_then(Value::as_str)
            .map(str::to_owned);
        wrapped.ok_or_else(|| unexpected("the answer has no `ciphertext`"))
    }

    /// Unwraps what [`VaultTransitKey::wrap_key`] gave.
    ///
    /// # Errors
    /// As [`VaultTransitKey::wrap_key`]; it was wrapped by another key, or with another context.
    pub async fn unwrap_key(
        &self,
        wrapped: &str,
        context: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let request = json!({
            "ciphertext": wrapped,
            "associated_data": STANDARD.encode(context),
        });
        self.decrypt(&request).await
    }

    /// Unwraps what another program wrapped, without a context.
    ///
    /// # Errors
    /// As [`VaultTransitKey::unwrap_key`].
    pub async fn unwrap_without_context(&self, wrapped: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        self.decrypt(&json!({"ciphertext": wrapped})).await
    }

    async fn decrypt(&self, request: &Value) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let path = format!("{}/decrypt/{}", self.mount, self.key);
        let mut answer = Value::Object(self.post(&path, request).await?);
        let secret = answer["plaintext"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok());
        zeroize_json(&mut answer);
        let secret = secret.ok_or_else(|| unexpected("the answer has no `plaintext` in base64"))?;
        Ok(Zeroizing::new(secret))
    }

    /// Asks as an apply, or else as a preview: the role of applies does not trust the job of a preview, which has
    /// to read states, too.
    async fn post(&self, path: &str, request: &Value) -> Result<Map<String, Value>, SecretProblem> {
        match self.client.post(path, request, SecretRights::Values).await {
            Err(SecretProblem::Login { .. }) if self.client.has_preview_role() => {
                self.client.post(path, request, SecretRights::Versions).await
            }
            answer => answer,
        }
    }
}
