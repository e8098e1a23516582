//! Opens the secret stores of the configuration, with the credentials of the job. No request is sent yet.

use std::{collections::BTreeMap, sync::Arc};

use zeroize::Zeroizing;

use crate::{RunContext, cluster_secrets::ClusterReader};
use konverge_base::{
    error::chain,
    model::{RepoPath, file_source::Source},
    variables,
};
use konverge_cloud::{
    AlibabaLogin, AwsLogin, AzureLogin, CloudEnvironment, GoogleLogin, JobIdentity,
    secret_stores::{
        AlibabaKmsKey, AlibabaSecretsStore, AlibabaSettings, AwsKmsKey, AwsParametersStore, AwsSecretsStore,
        AwsSettings, AzureKey, AzureKeyPlace, AzureSecretsStore, EnvStore, GoogleKmsKey, GoogleSecretsStore,
        KubernetesStore, KvVersion, RevisionFiles, SecretStore, SopsKey, SopsStore, TransitKeyPlace,
        VaultLogin, VaultServer, VaultStore, VaultTransitKey,
    },
};
use konverge_config::{
    SecretAuthConfig, SecretAuthMethod, SecretStoreConfig, SecretStoreKind, SecretsConfig, StateRecipient,
};
use konverge_kubernetes::Kubernetes;
use konverge_secrets::Secrets;

/// Opens the stores by name. `secrets` gets the tokens of logins for masking. Without clusters, no Secret of a cluster
/// is read.
pub fn open(
    run: &RunContext,
    config: &SecretsConfig,
    secrets: &Secrets,
    files: Option<Arc<dyn Source>>,
    clusters: Option<&Kubernetes>,
) -> BTreeMap<String, Arc<dyn SecretStore>> {
    let stores = config.stores.iter().map(|(name, store)| {
        let opened: Arc<dyn SecretStore> = match store.kind {
            SecretStoreKind::Env => Arc::new(EnvStore::new(run.env.clone())),
            SecretStoreKind::Vault => {
                let engine = match store.kv {
                    Some(1) => KvVersion::One,
                    _ => KvVersion::Two,
                };
                let server = vault_server(run, store);
                Arc::new(VaultStore::new(
                    server,
                    store.mount.clone(),
                    engine,
                    secrets.clone(),
                ))
            }
            SecretStoreKind::Aws => {
                let settings = aws_settings(run, store, variables::AWS_ENDPOINT_URL_SECRETS_MANAGER);
                Arc::new(AwsSecretsStore::new(settings, secrets.clone()))
            }
            SecretStoreKind::Ssm => {
                let settings = aws_settings(run, store, variables::AWS_ENDPOINT_URL_SSM);
                Arc::new(AwsParametersStore::new(settings, secrets.clone()))
            }
            SecretStoreKind::Gcp => {
                let login = GoogleLogin::new(CloudEnvironment::new(run.env.clone()));
                let store = GoogleSecretsStore::new(store.address.clone(), login, secrets.clone());
                Arc::new(store)
            }
            SecretStoreKind::Azure => {
                let login = AzureLogin::new(CloudEnvironment::new(run.env.clone()));
                let address = store.address.clone().unwrap_or_default();
                Arc::new(AzureSecretsStore::new(address, login, secrets.clone()))
            }
            SecretStoreKind::AliKms => {
                let variable = || run.var(variables::ALIBABA_CLOUD_REGION).map(str::to_owned);
                let settings = AlibabaSettings {
                    region: store.region.clone().or_else(variable),
                    address: store.address.clone(),
                    login: AlibabaLogin::new(CloudEnvironment::new(run.env.clone())),
                };
                Arc::new(AlibabaSecretsStore::new(settings, secrets.clone()))
            }
            SecretStoreKind::Sops => Arc::new(SopsStore::new(
                Arc::new(HeadFiles(files.clone())),
                run.var(variables::SOPS_AGE_KEY),
                sops_keys(run, config, store, secrets),
            )),
            SecretStoreKind::Kubernetes => Arc::new(KubernetesStore::new(Arc::new(ClusterReader {
                kubernetes: clusters.cloned(),
                cluster: store.cluster.clone(),
            }))),
        };
        (name.clone(), opened)
    });
    stores.collect()
}

/// The files of the planned revision, which contain the SOPS files.
struct HeadFiles(Option<Arc<dyn Source>>);

impl RevisionFiles for HeadFiles {
    fn read(&self, path: &str) -> Result<Option<Arc<[u8]>>, String> {
        let (Some(source), Some(path)) = (&self.0, RepoPath::normalize(path)) else {
            return Ok(None);
        };
        source.read_path(&path).map_err(|error| chain(&error))
    }
}

/// Returns the keys that SOPS files may be encrypted with.
fn sops_keys(
    run: &RunContext,
    config: &SecretsConfig,
    store: &SecretStoreConfig,
    secrets: &Secrets,
) -> Vec<SopsKey> {
    let keys = store.key_services().into_iter();
    keys.filter_map(|key| match key {
        StateRecipient::AwsKms { arn, region } => {
            let key = aws_kms_key(run, arn, region, secrets.clone());
            Some(SopsKey::AwsKms(key))
        }
        StateRecipient::VaultTransit { store, mount, key } => {
            let server = vault_server(run, config.stores.get(&store)?);
            let key = VaultTransitKey::new(TransitKeyPlace { mount, key }, server, secrets.clone());
            Some(SopsKey::VaultTransit(key))
        }
        StateRecipient::GoogleKms(name) => {
            let key = google_kms_key(run, name, secrets.clone());
            Some(SopsKey::GoogleKms(key))
        }
        StateRecipient::AzureKeyVault { vault, name } => {
            let key = azure_key(run, AzureKeyPlace { vault, name }, secrets.clone());
            Some(SopsKey::AzureKeyVault(key))
        }
        // SOPS files cannot be decrypted with these recipients here.
        StateRecipient::AliKms { .. } | StateRecipient::Age(_) => None,
    })
    .collect()
}

/// Returns a key of AWS KMS, with the credentials of the job.
pub fn aws_kms_key(run: &RunContext, arn: String, region: String, secrets: Secrets) -> AwsKmsKey {
    let environment = CloudEnvironment::new(run.env.clone()).with(variables::AWS_REGION, region.as_str());
    let settings = AwsSettings {
        region: Some(region),
        address: run.var(variables::AWS_ENDPOINT_URL_KMS).map(str::to_owned),
        login: AwsLogin::new(environment),
        preview_login: None,
    };
    AwsKmsKey::new(arn, settings, secrets)
}

/// Returns a key of Google Cloud KMS, with the credentials of the job.
pub fn google_kms_key(run: &RunContext, name: String, secrets: Secrets) -> GoogleKmsKey {
    let login = GoogleLogin::new(CloudEnvironment::new(run.env.clone()));
    // Google's own tools read another address of the service from this variable, too.
    let address = run
        .var(variables::CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS)
        .map(str::to_owned);
    GoogleKmsKey::new(name, address, login, secrets)
}

/// Returns a key of an Azure Key Vault, with the credentials of the job.
pub fn azure_key(run: &RunContext, place: AzureKeyPlace, secrets: Secrets) -> AzureKey {
    let login = AzureLogin::new(CloudEnvironment::new(run.env.clone()));
    AzureKey::new(place, login, secrets)
}

/// Returns a key of Alibaba Cloud KMS, with the credentials of the job.
pub fn alibaba_kms_key(run: &RunContext, arn: String, region: String, secrets: Secrets) -> AlibabaKmsKey {
    let settings = AlibabaSettings {
        region: Some(region),
        address: run.var(variables::ALIBABA_CLOUD_KMS_ENDPOINT).map(str::to_owned),
        login: AlibabaLogin::new(CloudEnvironment::new(run.env.clone())),
    };
    AlibabaKmsKey::new(arn, settings, secrets)
}

/// Returns the address of a Vault server, and the login there with the credentials of the job.
pub fn vault_server(run: &RunContext, store: &SecretStoreConfig) -> VaultServer {
    let variable = |name: &str| run.var(name).map(|value| Zeroizing::new(value.to_owned()));
    let mount =
        |auth: &SecretAuthConfig, default: &str| auth.mount.clone().unwrap_or_else(|| default.to_owned());
    let login = match &store.auth {
        Some(auth) if auth.method == SecretAuthMethod::Jwt => VaultLogin::Jwt {
            mount: mount(auth, "jwt"),
            role: auth.role.clone().unwrap_or_default(),
            preview_role: auth.preview_role.clone(),
            identity: JobIdentity::new(auth.audience.clone(), CloudEnvironment::new(run.env.clone())),
        },
        Some(auth) if auth.method == SecretAuthMethod::AppRole => VaultLogin::AppRole {
            mount: mount(auth, "approle"),
            role_id: variable(variables::VAULT_ROLE_ID),
            secret_id: variable(variables::VAULT_SECRET_ID),
        },
        _ => VaultLogin::Token(variable(variables::VAULT_TOKEN)),
    };
    VaultServer {
        address: store.address.clone().unwrap_or_default(),
        namespace: store.namespace.clone(),
        login,
    }
}

/// Returns the settings of an AWS service, with the credentials of the job.
fn aws_settings(run: &RunContext, store: &SecretStoreConfig, endpoint: &str) -> AwsSettings {
    let variable = |name: &str| run.var(name).map(str::to_owned);
    let region = store
        .region
        .clone()
        .or_else(|| variable(variables::AWS_REGION))
        .or_else(|| variable(variables::AWS_DEFAULT_REGION));
    let environment = CloudEnvironment::new(run.env.clone()).with(variables::AWS_REGION, region.as_deref());
    let (login, preview_login) = match &store.auth {
        None => (AwsLogin::new(environment), None),
        Some(auth) => {
            let login =
                |role: &String| AwsLogin::of_role(role.clone(), auth.audience.clone(), environment.clone());
            let role = auth.role.clone().unwrap_or_default();
            (login(&role), auth.preview_role.as_ref().map(login))
        }
    };
    AwsSettings {
        region,
        address: store.address.clone().or_else(|| variable(endpoint)),
        login,
        preview_login,
    }
}
