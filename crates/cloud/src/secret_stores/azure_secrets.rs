//! Azure Key Vault: the secrets of one vault, by name.
//!
//! <https://learn.microsoft.com/rest/api/keyvault/secrets/operation-groups>

use async_trait::async_trait;
use serde_json::Value;

use super::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    bearer_client::{BearerClient, url_of},
    http::unexpected,
    secret_document::zeroize_json,
};
use crate::AzureLogin;
use konverge_secrets::{SecretValue, Secrets};

pub(super) const API: &str = "7.4";
/// The scope of a token, by the end of the vault's host.
const RESOURCES: [(&str, &str); 2] = [
    (".vault.azure.cn", "https://vault.azure.cn/.default"),
    (
        ".vault.usgovcloudapi.net",
        "https://vault.usgovcloudapi.net/.default",
    ),
];
const RESOURCE: &str = "https://vault.azure.net/.default";
/// The maximum number of pages of versions that are read.
const PAGES: usize = 40;

/// The secrets of a vault.
pub struct AzureSecretsStore {
    address: String,
    login: AzureLogin,
    client: BearerClient,
}

impl AzureSecretsStore {
    /// Creates the store. The tokens of its logins are added to `secrets`, which masks them.
    pub fn new(address: String, login: AzureLogin, secrets: Secrets) -> Self {
        Self {
            address,
            login,
            client: BearerClient::new(secrets),
        }
    }

    async fn token(&self) -> Result<String, SecretProblem> {
        let scope = scope_of(&self.address);
        self.client.token(|| self.login.token(scope)).await
    }

    async fn get(&self, segments: &[&str]) -> Result<Value, SecretProblem> {
        let mut url = url_of(&self.address, segments)?;
        url.query_pairs_mut().append_pair("api-version", API);
        self.client.get(&url, &self.token().await?).await
    }
}

#[async_trait]
impl SecretStore for AzureSecretsStore {
    async fn log_in(&self, _: SecretRights) -> Result<(), SecretProblem> {
        self.token().await.map(drop)
    }

    async fn version(&self, query: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        let mut page = self.get(&["secrets", &query.path, "versions"]).await?;
        let mut newest: Option<(u64, String)> = None;
        for _ in 0..PAGES {
            for item in page["value"].as_array().into_iter().flatten() {
                let id = version_of(item)?;
                if query.version.as_ref().is_some_and(|version| *version == id) {
                    return Ok(Some(id));
                }
                let created = item["attributes"]["created"].as_u64().unwrap_or(0);
                let is_enabled = item["attributes"]["enabled"] != false;
                if is_enabled && newest.as_ref().is_none_or(|(at, _)| created > *at) {
                    newest = Some((created, id));
                }
            }
            let Some(next) = page["nextLink"].as_str().filter(|next| !next.is_empty()) else {
                break;
            };
            page = self.next(next).await?;
        }
        match (newest, &query.version) {
            (Some((_, id)), None) => Ok(Some(id)),
            _ => Err(SecretProblem::Missing(None)),
        }
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let version = query.version.as_deref().unwrap_or_default();
        let mut answer = self.get(&["secrets", &query.path, version]).await?;
        let id = version_of(&answer)?;
        let value = match answer["value"].take() {
            Value::String(text) => SecretValue::from(text),
            _ => return Err(unexpected("the answer has no value")),
        };
        zeroize_json(&mut answer);
        Ok(FetchedSecret::whole(value, Some(id)))
    }
}

impl AzureSecretsStore {
    /// Reads the next page of a list. A link to another server is refused, so that the token is not sent
    /// there.
    async fn next(&self, link: &str) -> Result<Value, SecretProblem> {
        let own = url_of(&self.address, &[])?;
        let next =
            url::Url::parse(link).map_err(|_| unexpected("the address of the next page is not a URL"))?;
        if next.origin() != own.origin() {
            return Err(unexpected("the next page is on another server"));
        }
        self.client.get(&next, &self.token().await?).await
    }
}

/// Returns the scope of a token for a vault.
pub(super) fn scope_of(address: &str) -> &'static str {
    let host = address.trim_end_matches('/');
    let of_cloud = RESOURCES.iter().find(|(end, _)| host.ends_with(end));
    of_cloud.map_or(RESOURCE, |(_, resource)| resource)
}

/// Returns the version at the end of a secret's id: `…/secrets/NAME/VERSION`.
fn version_of(item: &Value) -> Result<String, SecretProblem> {
    let id = item["id"].as_str().unwrap_or_default();
    match id.split("/secrets/").nth(1).and_then(|rest| rest.split_once('/')) {
        Some((_, version)) if !version.is_empty() => Ok(version.to_owned()),
        _ => Err(unexpected("the answer names no version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloudEnvironment;
    use konverge_secrets::HashKey;
    use serde_json::json;

    #[test]
    fn a_token_is_asked_for_the_cloud_of_the_vault() {
        for (address, scope) in [
            ("https://a.vault.azure.net", "https://vault.azure.net/.default"),
            ("https://a.vault.azure.cn/", "https://vault.azure.cn/.default"),
            (
                "https://a.vault.usgovcloudapi.net",
                "https://vault.usgovcloudapi.net/.default",
            ),
        ] {
            assert_eq!(scope_of(address), scope, "{address}");
        }
    }

    #[test]
    fn the_version_of_a_secret_is_the_last_part_of_its_id() {
        let version = |id: &str| version_of(&json!({ "id": id })).ok();
        let known = version("https://a.vault.azure.net/secrets/db/0123");
        assert_eq!(known.as_deref(), Some("0123"));
        for id in [
            "",
            "https://a.vault.azure.net/secrets/db",
            "https://a.vault.azure.net/secrets/db/",
        ] {
            assert_eq!(version(id), None, "{id}");
        }
    }

    #[tokio::test]
    async fn the_token_is_not_sent_to_the_server_of_a_link() {
        let store = AzureSecretsStore::new(
            "https://a.vault.azure.net".to_owned(),
            AzureLogin::new(CloudEnvironment::default()),
            Secrets::new(HashKey::derive("k")),
        );
        for link in [
            "https://b.vault.azure.net/secrets?page=2",
            "http://a.vault.azure.net/secrets?page=2",
            "https://a.vault.azure.net:8443/secrets?page=2",
            "https://a.vault.azure.net.example.com/",
        ] {
            let refused = store.next(link).await;
            assert_eq!(
                refused,
                Err(unexpected("the next page is on another server")),
                "{link}"
            );
        }
        assert!(store.next("/secrets?page=2").await.is_err());
        let own = store.next("https://a.vault.azure.net/secrets?page=2").await;
        assert!(matches!(own, Err(SecretProblem::NoCredentials(_))), "{own:?}");
    }
}
