//! [`JsonCipher`]: key services that encrypt and decrypt in requests of the same form.

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    KeyService, SecretProblem,
    secret_document::{secret_in, text_in, zeroize_json},
};

#[async_trait]
pub(super) trait JsonCipher: Send + Sync {
    /// The field of a request for the context.
    const CONTEXT: &'static str;

    async fn post(&self, operation: &str, request: &Value) -> Result<Value, SecretProblem>;

    /// Unwraps a secret that another program wrapped without a context.
    async fn unwrap_without_context(&self, wrapped: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let answer = self.post("decrypt", &json!({"ciphertext": wrapped})).await;
        secret_in(answer?, "plaintext")
    }
}

#[async_trait]
impl<C: JsonCipher> KeyService for C {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let context = STANDARD.encode(context);
        let mut request = json!({"plaintext": STANDARD.encode(secret), (C::CONTEXT): context});
        let answer = self.post("encrypt", &request).await;
        zeroize_json(&mut request);
        text_in(&answer?, "ciphertext")
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let request = json!({"ciphertext": wrapped, (C::CONTEXT): STANDARD.encode(context)});
        secret_in(self.post("decrypt", &request).await?, "plaintext")
    }
}
