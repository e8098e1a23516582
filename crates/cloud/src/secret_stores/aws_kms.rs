//! AWS KMS: symmetric keys that wrap small secrets.
//!
//! <https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html>

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{
    SecretProblem, SecretRights,
    aws_client::{AwsClient, AwsSettings},
    http::unexpected,
    secret_document::zeroize_json,
};
use konverge_base::secrets::Secrets;

/// A symmetric key of AWS KMS.
pub struct AwsKmsKey {
    arn: String,
    client: AwsClient,
}

impl AwsKmsKey {
    /// `secrets` learns the keys of logins.
    pub fn new(arn: String, settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            arn,
            client: AwsClient::new("kms", settings, secrets),
        }
    }

    /// Wraps a secret. The same context is needed to unwrap it; AWS writes it into its audit log.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let mut request = self.request(context);
        request["Plaintext"] = json!(STANDARD.encode(secret));
        let answer = self
            .client
            .call("TrentService.Encrypt", &request, SecretRights::Values)
            .await;
        zeroize_json(&mut request);
        let answer = answer?;
        let wrapped = answer["CiphertextBlob"].as_str();
        let wrapped = wrapped.ok_or_else(|| unexpected("the answer has no `CiphertextBlob`"))?;
        // An alias may point to another key later: only the key that wrapped it unwraps it.
        match (self.arn.contains(":alias/"), answer["KeyId"].as_str()) {
            (true, Some(key)) => Ok(format!("{key} {wrapped}")),
            _ => Ok(wrapped.to_owned()),
        }
    }

    /// Unwraps what [`AwsKmsKey::wrap_key`] gave.
    ///
    /// # Errors
    /// As [`AwsKmsKey::wrap_key`]; it was wrapped by another key, or with another context.
    pub async fn unwrap_key(
        &self,
        wrapped: &str,
        context: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let (key, wrapped) = wrapped.split_once(' ').unwrap_or((&self.arn, wrapped));
        if account(key) != account(&self.arn) {
            return Err(unexpected("it was wrapped by a key of another account"));
        }
        self.unwrap_by(key, wrapped, &own_context(context)).await
    }

    /// Unwraps what another program wrapped, with its context.
    ///
    /// # Errors
    /// As [`AwsKmsKey::unwrap_key`].
    pub async fn unwrap_with(
        &self,
        wrapped: &str,
        context: &Map<String, Value>,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        self.unwrap_by(&self.arn, wrapped, context).await
    }

    async fn unwrap_by(
        &self,
        key: &str,
        wrapped: &str,
        context: &Map<String, Value>,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let request = json!({"KeyId": key, "EncryptionContext": context, "CiphertextBlob": wrapped});
        let call = self
            .client
            .call("TrentService.Decrypt", &request, SecretRights::Values);
        let mut answer = call.await?;
        let secret = answer["Plaintext"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok());
        zeroize_json(&mut answer);
        let secret = secret.ok_or_else(|| unexpected("the answer has no `Plaintext` in base64"))?;
        Ok(Zeroizing::new(secret))
    }

    fn request(&self, context: &str) -> Value {
        json!({"KeyId": self.arn, "EncryptionContext": own_context(context)})
    }
}

/// What an ARN begins with: partition, region and account.
fn account(arn: &str) -> &str {
    arn.rsplit_once(':').map_or("", |(account, _)| account)
}

fn own_context(context: &str) -> Map<String, Value> {
    Map::from_iter([("konverge".to_owned(), Value::from(context))])
}
