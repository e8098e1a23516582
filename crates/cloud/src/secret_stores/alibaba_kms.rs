//! Keys of Alibaba Cloud's KMS that wrap small secrets.
//!
//! <https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-encrypt>

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use zeroize::Zeroizing;

use super::{
    AlibabaSettings, SecretProblem, alibaba_client::AlibabaClient, http::unexpected,
    secret_document::zeroize_json,
};
use konverge_base::secrets::Secrets;

/// A symmetric key.
pub struct AlibabaKmsKey {
    arn: String,
    client: AlibabaClient,
}

impl AlibabaKmsKey {
    /// `secrets` learns the keys of logins.
    pub fn new(arn: String, settings: AlibabaSettings, secrets: Secrets) -> Self {
        Self {
            arn,
            client: AlibabaClient::new(settings, secrets),
        }
    }

    /// Wraps a secret. The same context is needed to unwrap it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let plaintext = Zeroizing::new(STANDARD.encode(secret));
        let context = own_context(context);
        let parameters = [
            ("KeyId", self.arn.as_str()),
            ("Plaintext", plaintext.as_str()),
            ("EncryptionContext", context.as_str()),
        ];
        let answer = self.client.call("Encrypt", &parameters).await?;
        let wrapped = answer["CiphertextBlob"].as_str().map(str::to_owned);
        wrapped.ok_or_else(|| unexpected("the answer has no `CiphertextBlob`"))
    }

    /// Unwraps what [`AlibabaKmsKey::wrap_key`] gave.
    ///
    /// # Errors
    /// As [`AlibabaKmsKey::wrap_key`]; it was wrapped by another key, or with another context.
    pub async fn unwrap_key(
        &self,
        wrapped: &str,
        context: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let context = own_context(context);
        let parameters = [
            ("CiphertextBlob", wrapped),
            ("EncryptionContext", context.as_str()),
        ];
        let mut answer = self.client.call("Decrypt", &parameters).await?;
        // The service finds the key in what it decrypts: it may be another one that the job can use.
        let id = answer["KeyId"].as_str().and_then(|id| id.rsplit('/').next());
        let is_own = id.is_some() && id == self.arn.rsplit('/').next();
        let secret = answer["Plaintext"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok());
        let secret = secret.map(Zeroizing::new);
        zeroize_json(&mut answer);
        match is_own {
            true => secret.ok_or_else(|| unexpected("the answer has no `Plaintext` in base64")),
            false => Err(unexpected("it was wrapped by another key")),
        }
    }
}

fn own_context(context: &str) -> String {
    json!({"konverge": context}).to_string()
}
