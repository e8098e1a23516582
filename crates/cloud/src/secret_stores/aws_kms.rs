//! AWS KMS: symmetric keys that wrap small secrets.
//!
//! <https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html>

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{
    KeyService, SecretProblem, SecretRights,
    aws_client::{AwsClient, AwsSettings},
    http::unexpected,
    secret_document::{secret_in, text_in, zeroize_json},
};
use konverge_secrets::Secrets;

/// A symmetric key of AWS KMS.
pub struct AwsKmsKey {
    pub(super) arn: String,
    client: AwsClient,
}

impl AwsKmsKey {
    /// Creates the key. The keys of its logins are added to `secrets`, which masks them.
    pub fn new(arn: String, settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            arn,
            client: AwsClient::new("kms", settings, secrets),
        }
    }

    /// Unwraps a secret that was wrapped by a key with this context.
    ///
    /// # Errors
    /// The errors of [`KeyService::unwrap_key`].
    pub(super) async fn unwrap_with(
        &self,
        key: &str,
        wrapped: &str,
        context: &Map<String, Value>,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let request = json!({"KeyId": key, "EncryptionContext": context, "CiphertextBlob": wrapped});
        let call = self
            .client
            .call("TrentService.Decrypt", &request, SecretRights::Values);
        secret_in(call.await?, "Plaintext")
    }
}

#[async_trait]
impl KeyService for AwsKmsKey {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = json!({"KeyId": self.arn, "EncryptionContext": own_context(context)});
        request["Plaintext"] = json!(STANDARD.encode(secret));
        let answer = self
            .client
            .call("TrentService.Encrypt", &request, SecretRights::Values)
            .await;
        zeroize_json(&mut request);
        let answer = answer?;
        let wrapped = text_in(&answer, "CiphertextBlob")?;
        // The id of the key is stored with the ciphertext: an alias may later point to another key, which
        // cannot unwrap it.
        match (self.arn.contains(":alias/"), answer["KeyId"].as_str()) {
            (true, Some(key)) => Ok(format!("{key} {wrapped}")),
            _ => Ok(wrapped),
        }
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let (key, wrapped) = wrapped.split_once(' ').unwrap_or((&self.arn, wrapped));
        if account(key) != account(&self.arn) {
            return Err(unexpected("it was wrapped by a key of another account"));
        }
        self.unwrap_with(key, wrapped, &own_context(context)).await
    }
}

/// Returns the partition, region and account of an ARN.
fn account(arn: &str) -> &str {
    arn.rsplit_once(':').map_or("", |(account, _)| account)
}

fn own_context(context: &str) -> Map<String, Value> {
    Map::from_iter([("konverge".to_owned(), Value::from(context))])
}
