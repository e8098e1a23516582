//! Opens the secret stores of the configuration, with the credentials of the job. Nothing is asked yet.

use std::{collections::BTreeMap, sync::Arc};

use zeroize::Zeroizing;

use super::RunContext;
use crate::{
    config::{SecretAuthConfig, SecretAuthMethod, SecretStoreConfig, SecretStoreKind, SecretsConfig},
    model::ClusterName,
    secret_stores::{
        ClusterSecrets, EnvStore, JobIdentity, KubernetesStore, KvVersion, SecretStore, VaultLogin,
        VaultServer, VaultSettings, VaultStore,
    },
    secrets::Secrets,
};

/// The stores by name. `secrets` learns the tokens of logins; `cluster` gives the reader of a cluster's Secrets.
pub(super) fn open(
    run: &RunContext,
    config: &SecretsConfig,
    secrets: &Secrets,
    cluster: impl Fn(Option<&ClusterName>) -> Arc<dyn ClusterSecrets>,
) -> BTreeMap<String, Arc<dyn SecretStore>> {
    let stores = config.stores.iter().map(|(name, store)| {
        let opened: Arc<dyn SecretStore> = match store.kind {
            SecretStoreKind::Env => Arc::new(EnvStore::new(name.clone(), run.env.clone())),
            SecretStoreKind::Vault => {
                let settings = vault_settings(run, store);
                Arc::new(VaultStore::new(name.clone(), settings, secrets.clone()))
            }
            SecretStoreKind::Kubernetes => {
                let reader = cluster(store.cluster.as_ref());
                Arc::new(KubernetesStore::new(name.clone(), reader))
            }
        };
        (name.clone(), opened)
    });
    stores.collect()
}

/// The settings of a Vault, with the credentials of the job.
fn vault_settings(run: &RunContext, store: &SecretStoreConfig) -> VaultSettings {
    let variable = |name: &str| run.var(name).map(|value| Zeroizing::new(value.to_owned()));
    let mount =
        |auth: &SecretAuthConfig, default: &str| auth.mount.clone().unwrap_or_else(|| default.to_owned());
    let login = match &store.auth {
        Some(auth) if auth.method == SecretAuthMethod::Jwt => VaultLogin::Jwt {
            mount: mount(auth, "jwt"),
            role: auth.role.clone().unwrap_or_default(),
            preview_role: auth.preview_role.clone(),
            identity: run
                .var("ACTIONS_ID_TOKEN_REQUEST_URL")
                .zip(variable("ACTIONS_ID_TOKEN_REQUEST_TOKEN"))
                .map(|(url, token)| JobIdentity {
                    url: url.to_owned(),
                    token,
                    audience: auth.audience.clone(),
                }),
        },
        Some(auth) if auth.method == SecretAuthMethod::AppRole => VaultLogin::AppRole {
            mount: mount(auth, "approle"),
            role_id: variable("VAULT_ROLE_ID"),
            secret_id: variable("VAULT_SECRET_ID"),
        },
        _ => VaultLogin::Token(variable("VAULT_TOKEN")),
    };
    VaultSettings {
        server: VaultServer {
            address: store.address.clone().unwrap_or_default(),
            namespace: store.namespace.clone(),
            login,
        },
        mount: store.mount.clone(),
        engine: match store.kv {
            Some(1) => KvVersion::One,
            _ => KvVersion::Two,
        },
    }
}
