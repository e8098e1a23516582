//! Keys of Alibaba Cloud's KMS that wrap small secrets.
//!
//! <https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-encrypt>

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use zeroize::Zeroizing;

use super::{
    AlibabaSettings, KeyService, SecretProblem,
    alibaba_client::AlibabaClient,
    http::unexpected,
    secret_document::{secret_in, text_in},
};
use konverge_base::secrets::Secrets;

/// A symmetric key of Alibaba Cloud's KMS.
pub struct AlibabaKmsKey {
    arn: String,
    client: AlibabaClient,
}

impl AlibabaKmsKey {
    /// Creates the key. The keys of its logins are added to `secrets`, which masks them.
    pub fn new(arn: String, settings: AlibabaSettings, secrets: Secrets) -> Self {
        Self {
            arn,
            client: AlibabaClient::new(settings, secrets),
        }
    }
}

#[async_trait]
impl KeyService for AlibabaKmsKey {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let plaintext = Zeroizing::new(STANDARD.encode(secret));
        let context = own_context(context);
        let parameters = [
            ("KeyId", self.arn.as_str()),
            ("Plaintext", plaintext.as_str()),
            ("EncryptionContext", context.as_str()),
        ];
        text_in(&self.client.call("Encrypt", &parameters).await?, "CiphertextBlob")
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let context = own_context(context);
        let parameters = [
            ("CiphertextBlob", wrapped),
            ("EncryptionContext", context.as_str()),
        ];
        let answer = self.client.call("Decrypt", &parameters).await?;
        // The ciphertext names the key that decrypts it, which may be another key that this job can use.
        // That is refused.
        let id = answer["KeyId"].as_str().and_then(|id| id.rsplit('/').next());
        let is_own = id.is_some() && id == self.arn.rsplit('/').next();
        let secret = secret_in(answer, "Plaintext");
        if is_own {
            secret
        } else {
            Err(unexpected("it was wrapped by another key"))
        }
    }
}

fn own_context(context: &str) -> String {
    json!({"konverge": context}).to_string()
}
