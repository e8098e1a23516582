//! Keys of Azure Key Vault that wrap small secrets, by RSA-OAEP-256.
//!
//! <https://learn.microsoft.com/rest/api/keyvault/keys/wrap-key/wrap-key>

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{
    KeyService, SecretProblem,
    azure_secrets::{API, scope_of},
    bearer_client::{BearerClient, url_of},
    http::unexpected,
    secret_document::zeroize_json,
};
use crate::AzureLogin;
use konverge_secrets::Secrets;

const ALGORITHM: &str = "RSA-OAEP-256";

/// The address of an RSA key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureKeyPlace {
    /// The address of the vault.
    pub vault: String,
    /// The name of the key.
    pub name: String,
}

/// An RSA key of a vault.
pub struct AzureKey {
    pub(super) place: AzureKeyPlace,
    login: AzureLogin,
    client: BearerClient,
}

impl AzureKey {
    /// Creates the key. The tokens of its logins are added to `secrets`, which masks them.
    pub fn new(place: AzureKeyPlace, login: AzureLogin, secrets: Secrets) -> Self {
        Self {
            place,
            login,
            client: BearerClient::new(secrets),
        }
    }

    /// Unwraps a secret that another program wrapped with this version of the key.
    ///
    /// # Errors
    /// The errors of [`KeyService::unwrap_key`].
    pub async fn unwrap_without_context(
        &self,
        version: &str,
        wrapped: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        if !is_version(version) {
            return Err(unexpected("the key version is not valid"));
        }
        let value = self.operate("unwrapkey", version, wrapped).await?;
        let secret = URL_SAFE_NO_PAD.decode(value.trim_end_matches('='));
        let secret = secret.map_err(|_| unexpected("the answer is not base64url"))?;
        Ok(Zeroizing::new(secret))
    }

    async fn operate(
        &self,
        operation: &str,
        version: &str,
        value: &str,
    ) -> Result<Zeroizing<String>, SecretProblem> {
        let url = with_version(url_of(
            &self.place.vault,
            &["keys", &self.place.name, version, operation],
        )?);
        let mut request = json!({"alg": ALGORITHM, "value": value});
        let answer = self.client.post(&url, &self.token().await?, &request).await;
        zeroize_json(&mut request);
        match answer?["value"].take() {
            Value::String(value) => Ok(Zeroizing::new(value)),
            _ => Err(unexpected("the answer has no `value`")),
        }
    }

    async fn token(&self) -> Result<String, SecretProblem> {
        let scope = scope_of(&self.place.vault);
        self.client.token(|| self.login.token(scope)).await
    }
}

#[async_trait]
impl KeyService for AzureKey {
    /// Wraps a secret with the newest version of the key. RSA takes no context, so the digest of the context
    /// is wrapped together with the secret.
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        let url = url_of(&self.place.vault, &["keys", &self.place.name])?;
        let about = self.client.get(&with_version(url), &self.token().await?).await?;
        let id = about["key"]["kid"].as_str().unwrap_or_default();
        let version = id.rsplit('/').next().filter(|version| is_version(version));
        let version = version.ok_or_else(|| unexpected("the answer names no version of the key"))?;
        let mut whole = Zeroizing::new(Vec::with_capacity(32 + secret.len()));
        whole.extend_from_slice(&Sha256::digest(context));
        whole.extend_from_slice(secret);
        let wrapped = self
            .operate("wrapkey", version, &URL_SAFE_NO_PAD.encode(&whole))
            .await?;
        Ok(format!("{version}:{}", wrapped.as_str()))
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let parts = wrapped.split_once(':').filter(|(version, _)| is_version(version));
        let (version, value) =
            parts.ok_or_else(|| unexpected("the wrapped secret names no version of the key"))?;
        let whole = self.unwrap_without_context(version, value).await?;
        let secret = whole.strip_prefix(Sha256::digest(context).as_slice());
        let secret = secret.ok_or_else(|| unexpected("it was wrapped with another context"))?;
        Ok(Zeroizing::new(secret.to_vec()))
    }
}

fn with_version(mut url: url::Url) -> url::Url {
    url.query_pairs_mut().append_pair("api-version", API);
    url
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloudEnvironment;
    use konverge_secrets::HashKey;

    /// The version is a part of the address, and it comes from what is stored.
    #[tokio::test]
    async fn a_version_that_leads_elsewhere_is_refused_before_the_login() {
        let place = AzureKeyPlace {
            vault: "https://a.vault.azure.net".to_owned(),
            name: "konverge".to_owned(),
        };
        let login = AzureLogin::new(CloudEnvironment::default());
        let key = AzureKey::new(place, login, Secrets::new(HashKey::derive("k")));
        for version in ["", "..", "../other/1", "1?x", "1/2", "1%2f"] {
            let refused = key.unwrap_key(&format!("{version}:AAAA"), "context").await;
            let expected = unexpected("the wrapped secret names no version of the key");
            assert_eq!(refused, Err(expected), "{version}");
            let refused = key.unwrap_without_context(version, "AAAA").await;
            assert_eq!(
                refused,
                Err(unexpected("the key version is not valid")),
                "{version}"
            );
        }
        assert!(key.unwrap_key("no separator", "context").await.is_err());
        let asked = key.unwrap_key("0123abc:AAAA", "context").await;
        assert!(matches!(asked, Err(SecretProblem::NoCredentials(_))), "{asked:?}");
    }
}
