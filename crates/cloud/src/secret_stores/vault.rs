//! The KV engine of HashiCorp Vault and OpenBao, in both versions.
//!
//! <https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2>

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    http::unexpected,
    vault_client::{VaultClient, VaultServer},
};
use konverge_secrets::Secrets;

/// The version of the KV engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvVersion {
    /// Version 1, in which secrets have no versions.
    One,
    /// Version 2, in which secrets have versions.
    Two,
}

/// A KV engine of Vault as a store.
pub struct VaultStore {
    /// The mount of the engine. `None`: the first component of each path is the mount.
    mount: Option<String>,
    engine: KvVersion,
    client: VaultClient,
}

impl VaultStore {
    /// Creates the store. The tokens of its logins are added to `secrets`, which masks them.
    pub fn new(server: VaultServer, mount: Option<String>, engine: KvVersion, secrets: Secrets) -> Self {
        Self {
            mount,
            engine,
            client: VaultClient::new(server, secrets),
        }
    }

    /// Splits a path into the mount of the engine and the path below it.
    fn place<'q>(&'q self, path: &'q str) -> Result<(&'q str, &'q str), SecretProblem> {
        let path = path.trim_start_matches('/');
        match &self.mount {
            Some(mount) => Ok((mount.trim_matches('/'), path)),
            None => path.split_once('/').ok_or(SecretProblem::NoMount),
        }
    }
}

/// Returns true if a version is not deleted yet. With `delete_version_after`, a version has a deletion time
/// in the future.
fn is_there(about: &Value, now: Timestamp) -> bool {
    let deletion = about["deletion_time"].as_str().unwrap_or_default();
    let is_deleted = deletion.parse::<Timestamp>().map(|deletion| deletion <= now);
    about["destroyed"] != true && !is_deleted.unwrap_or(!deletion.is_empty())
}

#[async_trait]
impl SecretStore for VaultStore {
    async fn log_in(&self, rights: SecretRights) -> Result<(), SecretProblem> {
        // Every token may look up itself, so this checks the login without reading a secret.
        self.client.get("auth/token/lookup-self", rights).await.map(drop)
    }

    async fn version(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretProblem> {
        if self.engine == KvVersion::One {
            return Ok(None);
        }
        let (mount, path) = self.place(&query.path)?;
        let found = self
            .client
            .get(&format!("{mount}/metadata/{path}"), rights)
            .await?;
        let newest = found.get("current_version").and_then(Value::as_u64);
        let newest = newest
            .ok_or_else(|| unexpected("its metadata has no version; is it a KV engine of version 2?"))?;
        let version = query.version.clone().unwrap_or_else(|| newest.to_string());
        let about = found.get("versions").and_then(|versions| versions.get(&version));
        if about.is_some_and(|about| is_there(about, Timestamp::now())) {
            Ok(Some(version))
        } else {
            Err(SecretProblem::Missing(None))
        }
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let (mount, path) = self.place(&query.path)?;
        if self.engine == KvVersion::One {
            let path = format!("{mount}/{path}");
            let found = self.client.get(&path, SecretRights::Values).await?;
            return Ok(FetchedSecret::fields(found, None));
        }
        let version = query.version.as_ref();
        let version = version.map(|version| format!("?version={version}"));
        let path = format!("{mount}/data/{path}{}", version.unwrap_or_default());
        let mut found = self.client.get(&path, SecretRights::Values).await?;
        let version = found.get("metadata").and_then(|about| about["version"].as_u64());
        match found.get_mut("data").map(Value::take) {
            Some(Value::Object(fields)) => {
                let version = version.map(|version| version.to_string());
                Ok(FetchedSecret::fields(fields, version))
            }
            Some(Value::Null) => Err(SecretProblem::Missing(None)),
            _ => Err(unexpected(
                "the answer has no fields; is it a KV engine of version 2?",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deletion_that_is_announced_is_no_deletion_yet() {
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        for (deletion, destroyed, there) in [
            ("", false, true),
            ("", true, false),
            ("2026-11-22T11:59:59.123456789Z", false, false),
            ("2026-12-22T12:00:00Z", false, true),
            ("soon", false, false),
        ] {
            let about = json!({"deletion_time": deletion, "destroyed": destroyed});
            assert_eq!(is_there(&about, now), there, "{about}");
        }
    }

    use crate::secret_stores::VaultLogin;
    use konverge_secrets::HashKey;

    fn store(mount: Option<&str>, engine: KvVersion) -> VaultStore {
        let server = VaultServer {
            address: "https://vault.invalid".to_owned(),
            namespace: None,
            login: VaultLogin::Token(None),
        };
        let mount = mount.map(str::to_owned);
        VaultStore::new(server, mount, engine, Secrets::new(HashKey::derive("k")))
    }

    #[test]
    fn the_mount_is_that_of_the_configuration_or_the_first_part_of_the_path() {
        let named = store(Some("/team/kv/"), KvVersion::Two);
        assert_eq!(named.place("/pay/db"), Ok(("team/kv", "pay/db")));
        assert_eq!(named.place("db"), Ok(("team/kv", "db")));
        let unnamed = store(None, KvVersion::Two);
        assert_eq!(unnamed.place("/secret/pay/db"), Ok(("secret", "pay/db")));
        assert_eq!(unnamed.place("db"), Err(SecretProblem::NoMount));
    }

    #[tokio::test]
    async fn an_engine_without_versions_is_not_asked_for_one() {
        let query = SecretQuery {
            path: "secret/db".to_owned(),
            version: None,
        };
        let version = async |engine| store(None, engine).version(&query, SecretRights::Versions).await;
        assert_eq!(version(KvVersion::One).await, Ok(None));
        let asked = version(KvVersion::Two).await;
        assert!(matches!(asked, Err(SecretProblem::NoCredentials(_))), "{asked:?}");
    }
}
