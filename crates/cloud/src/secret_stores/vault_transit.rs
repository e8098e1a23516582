//! The transit engine of HashiCorp Vault and OpenBao: keys that wrap small secrets.
//!
//! <https://developer.hashicorp.com/vault/api-docs/secret/transit>

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    KeyService, SecretProblem, SecretRights,
    secret_document::{secret_in, text_in, zeroize_json},
    vault_client::{VaultClient, VaultServer},
};
use konverge_secrets::Secrets;

/// The address of a key in a transit engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitKeyPlace {
    /// The path of the engine.
    pub mount: String,
    /// The name of the key.
    pub key: String,
}

/// A key of a transit engine, of an authenticated type: `aes256-gcm96` or `chacha20-poly1305`.
pub struct VaultTransitKey {
    pub(super) place: TransitKeyPlace,
    client: VaultClient,
}

impl VaultTransitKey {
    /// Creates the key. The tokens of its logins are added to `secrets`, which masks them.
    pub fn new(place: TransitKeyPlace, server: VaultServer, secrets: Secrets) -> Self {
        Self {
            place,
            client: VaultClient::new(server, secrets),
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

    /// Posts with the role of applies, or else with the role of previews. A preview must unwrap keys too, to
    /// read states, but the role of applies does not trust its job.
    async fn post(&self, operation: &str, request: &Value) -> Result<Value, SecretProblem> {
        let path = format!("{}/{operation}/{}", self.place.mount, self.place.key);
        let answer = match self.client.post(&path, request, SecretRights::Values).await {
            Err(SecretProblem::Login { .. }) if self.client.has_preview_role() => {
                self.client.post(&path, request, SecretRights::Versions).await
            }
            answer => answer,
        };
        answer.map(Value::Object)
    }
}

#[async_trait]
impl KeyService for VaultTransitKey {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = json!({
            "plaintext": STANDARD.encode(secret),
            "associated_data": STANDARD.encode(context),
        });
        let answer = self.post("encrypt", &request).await;
        zeroize_json(&mut request);
        text_in(&answer?, "ciphertext")
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let data = STANDARD.encode(context);
        self.decrypt(&json!({"ciphertext": wrapped, "associated_data": data}))
            .await
    }
}
