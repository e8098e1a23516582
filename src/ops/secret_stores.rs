//! Opens the secret stores of the configuration, with the credentials of the job. Nothing is asked yet.

use std::{collections::BTreeMap, sync::Arc};

use zeroize::Zeroizing;

use super::RunContext;
use crate::{
    config::{SecretAuthConfig, SecretAuthMethod, SecretStoreConfig, SecretStoreKind, SecretsConfig},
    model::ClusterName,
    secret_stores::{
        AwsCredentials, AwsParametersStore, AwsSecretsStore, AwsSettings, AwsStoreLogin, ClusterSecrets,
        EnvStore, JobIdentity, KubernetesStore, KvVersion, RoleToken, SecretStore, VaultLogin, VaultServer,
        VaultSettings, VaultStore, public_host,
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
            SecretStoreKind::Aws => {
                let settings = aws_settings(run, store, "AWS_ENDPOINT_URL_SECRETS_MANAGER");
                Arc::new(AwsSecretsStore::new(name.clone(), settings, secrets.clone()))
            }
            SecretStoreKind::Ssm => {
                let settings = aws_settings(run, store, "AWS_ENDPOINT_URL_SSM");
                Arc::new(AwsParametersStore::new(name.clone(), settings, secrets.clone()))
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
    let variable = |name: &str| secret_variable(run, name);
    let mount =
        |auth: &SecretAuthConfig, default: &str| auth.mount.clone().unwrap_or_else(|| default.to_owned());
    let login = match &store.auth {
        Some(auth) if auth.method == SecretAuthMethod::Jwt => VaultLogin::Jwt {
            mount: mount(auth, "jwt"),
            role: auth.role.clone().unwrap_or_default(),
            preview_role: auth.preview_role.clone(),
            identity: job_identity(run, auth.audience.clone()),
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

/// The settings of a service of AWS, with the credentials of the job.
fn aws_settings(run: &RunContext, store: &SecretStoreConfig, endpoint: &str) -> AwsSettings {
    let variable = |name: &str| run.var(name).map(str::to_owned);
    let region = store
        .region
        .clone()
        .or_else(|| variable("AWS_REGION"))
        .or_else(|| variable("AWS_DEFAULT_REGION"));
    let sts = variable("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| match &region {
        Some(region) => format!("https://{}/", public_host("sts", region)),
        None => "https://sts.amazonaws.com/".to_owned(),
    });
    let role = |role: Option<String>, preview_role: Option<String>, token| AwsStoreLogin::Role {
        role: role.unwrap_or_default(),
        preview_role,
        token,
        sts: sts.clone(),
    };
    let keys = || {
        Some(AwsCredentials {
            access_key: variable("AWS_ACCESS_KEY_ID")?,
            secret_key: secret_variable(run, "AWS_SECRET_ACCESS_KEY")?,
            session_token: secret_variable(run, "AWS_SESSION_TOKEN"),
        })
    };
    let login = match (&store.auth, keys()) {
        (Some(auth), _) => {
            let audience = auth
                .audience
                .clone()
                .unwrap_or_else(|| "sts.amazonaws.com".to_owned());
            let token = RoleToken::Job(job_identity(run, Some(audience)));
            role(auth.role.clone(), auth.preview_role.clone(), token)
        }
        (None, Some(keys)) => AwsStoreLogin::Keys(Some(keys)),
        (None, None) => match (variable("AWS_ROLE_ARN"), variable("AWS_WEB_IDENTITY_TOKEN_FILE")) {
            (Some(arn), Some(file)) => role(Some(arn), None, RoleToken::File(file)),
            _ => AwsStoreLogin::Keys(None),
        },
    };
    AwsSettings {
        region,
        address: store.address.clone().or_else(|| variable(endpoint)),
        login,
    }
}

fn secret_variable(run: &RunContext, name: &str) -> Option<Zeroizing<String>> {
    run.var(name).map(|value| Zeroizing::new(value.to_owned()))
}

/// How this job gets its OIDC token; `None` in a job that may not.
fn job_identity(run: &RunContext, audience: Option<String>) -> Option<JobIdentity> {
    let url = run.var("ACTIONS_ID_TOKEN_REQUEST_URL")?.to_owned();
    let token = secret_variable(run, "ACTIONS_ID_TOKEN_REQUEST_TOKEN")?;
    Some(JobIdentity { url, token, audience })
}
