//! Google Secret Manager. The path of a secret is `PROJECT/NAME`.
//!
//! <https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions>

use async_trait::async_trait;

use super::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    bearer_client::{BearerClient, url_of},
    http::unexpected,
    secret_document::zeroize_json,
};
use crate::GoogleLogin;
use konverge_secrets::{SecretValue, Secrets, decode_base64};

const ADDRESS: &str = "https://secretmanager.googleapis.com";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The secrets of Google's projects.
pub struct GoogleSecretsStore {
    address: String,
    login: GoogleLogin,
    client: BearerClient,
}

impl GoogleSecretsStore {
    /// Creates the store. `address` is that of a private endpoint. The tokens of its logins are added to
    /// `secrets`, which masks them.
    pub fn new(address: Option<String>, login: GoogleLogin, secrets: Secrets) -> Self {
        Self {
            address: address.unwrap_or_else(|| ADDRESS.to_owned()),
            login,
            client: BearerClient::new(secrets),
        }
    }

    async fn get(&self, query: &SecretQuery, method: &str) -> Result<serde_json::Value, SecretProblem> {
        let (project, name) = query.path.split_once('/').ok_or(SecretProblem::Missing(None))?;
        let version = query.version.as_deref().unwrap_or("latest");
        let last = format!("{version}{method}");
        let segments = ["v1", "projects", project, "secrets", name, "versions", &last];
        let url = url_of(&self.address, &segments)?;
        let bearer = self.client.token(|| self.login.token(SCOPE)).await?;
        self.client.get(&url, &bearer).await
    }
}

#[async_trait]
impl SecretStore for GoogleSecretsStore {
    async fn log_in(&self, _: SecretRights) -> Result<(), SecretProblem> {
        self.client.token(|| self.login.token(SCOPE)).await.map(drop)
    }

    async fn version(&self, query: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        let about = self.get(query, "").await?;
        if about["state"] != "ENABLED" {
            return Err(SecretProblem::Missing(None));
        }
        number(&about).map(Some)
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let mut answer = self.get(query, ":access").await?;
        let version = number(&answer)?;
        let data = answer["payload"]["data"].as_str().and_then(decode_base64);
        let sum = answer["payload"]["dataCrc32c"].as_str().map(str::to_owned);
        zeroize_json(&mut answer);
        let value = SecretValue::new(data.ok_or_else(|| unexpected("the answer has no `data` in base64"))?);
        if sum.is_some_and(|sum| sum != crc32c(value.expose()).to_string()) {
            return Err(unexpected("the value is damaged: its checksum does not match"));
        }
        Ok(FetchedSecret::whole(value, Some(version)))
    }
}

/// Returns the number at the end of a version's name.
fn number(answer: &serde_json::Value) -> Result<String, SecretProblem> {
    let name = answer["name"].as_str().unwrap_or_default();
    match name.rsplit_once("/versions/") {
        Some((_, number)) if !number.is_empty() => Ok(number.to_owned()),
        _ => Err(unexpected("the answer names no version")),
    }
}

/// Computes the CRC-32C checksum (Castagnoli).
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_googles() {
        // The check value of CRC-32C, and an example of Google's documentation of Cloud Storage.
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(super::crc32c(b""), 0);
    }

    use super::*;
    use crate::CloudEnvironment;
    use konverge_secrets::HashKey;
    use serde_json::json;

    #[test]
    fn the_version_of_a_secret_is_the_number_at_the_end_of_its_name() {
        let of = |name: &str| number(&json!({ "name": name })).ok();
        assert_eq!(of("projects/1/secrets/db/versions/7").as_deref(), Some("7"));
        for name in ["", "projects/1/secrets/db", "projects/1/secrets/db/versions/"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert!(number(&json!({"name": 7})).is_err());
    }

    #[tokio::test]
    async fn a_path_without_a_project_is_missing_without_a_login() {
        let login = GoogleLogin::new(CloudEnvironment::default());
        let store = GoogleSecretsStore::new(None, login, Secrets::new(HashKey::derive("k")));
        let query = SecretQuery {
            path: "db".to_owned(),
            version: None,
        };
        let missing = Err(SecretProblem::Missing(None));
        assert_eq!(store.version(&query, SecretRights::Versions).await, missing);
        assert!(
            store
                .read(&query)
                .await
                .is_err_and(|problem| !problem.is_of_store())
        );
    }
}
