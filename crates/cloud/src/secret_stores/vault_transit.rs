//! The transit engine of HashiCorp Vault and OpenBao: keys that wrap small secrets.
//!
//! <https://developer.hashicorp.com/vault/api-docs/secret/transit>

use async_trait::async_trait;
use serde_json::Value;

use super::{
    SecretProblem, SecretRights,
    json_cipher::JsonCipher,
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
}

#[async_trait]
impl JsonCipher for VaultTransitKey {
    const CONTEXT: &'static str = "associated_data";

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
