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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AwsLogin, CloudEnvironment};
    use konverge_secrets::HashKey;

    /// The ciphertext is stored where more people may write than may use the key.
    #[tokio::test]
    async fn a_key_of_another_account_or_region_is_not_asked() {
        let settings = AwsSettings {
            region: Some("eu-central-1".to_owned()),
            address: None,
            login: AwsLogin::new(CloudEnvironment::default()),
            preview_login: None,
        };
        let arn = "arn:aws:kms:eu-central-1:111122223333:alias/konverge";
        let key = AwsKmsKey::new(arn.to_owned(), settings, Secrets::new(HashKey::derive("k")));
        for other in [
            "arn:aws:kms:eu-central-1:999999999999:key/1",
            "arn:aws:kms:us-east-1:111122223333:key/1",
            "arn:aws-cn:kms:eu-central-1:111122223333:key/1",
            "key/1",
            "",
        ] {
            let refused = key.unwrap_key(&format!("{other} AAAA"), "context").await;
            let expected = unexpected("it was wrapped by a key of another account");
            assert_eq!(refused, Err(expected), "{other}");
        }
        for own in ["AAAA", "arn:aws:kms:eu-central-1:111122223333:key/1 AAAA"] {
            let asked = key.unwrap_key(own, "context").await;
            assert!(
                matches!(asked, Err(SecretProblem::NoCredentials(_))),
                "{own}: {asked:?}"
            );
        }
    }
}
