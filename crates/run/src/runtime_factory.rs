//! Builds the runtimes of a run from the effective configuration.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

use crate::{
    RunContext, SecretReferences, StateBackend, caches,
    cluster_selection::{GivenCluster, Live, given_name},
    health_rules, kcl_health,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, file_source::Source},
    secrets::{SecretResolver, SecretValue, Secrets},
};
use konverge_cloud::{
    CloudEnvironment,
    secret_stores::{ClusterSecrets, SecretProblem},
};
use konverge_config::{self as config, Config};
use konverge_engine::{RuntimeRegistry, runtime::RunNotes};
use konverge_kubernetes::{
    ClusterAccess, ClusterCredentials, Conflicts, KubeconfigText, Kubernetes, Options, SecretData,
    health::HealthRules,
};
use konverge_state::Sealer;
use konverge_terraform::{AllowedProvider, StateEncryption, Terraform, TerraformOptions};

/// The settings that determine the infrastructure and how it is used.
pub struct RuntimeSetup<'a> {
    /// The effective configuration.
    pub config: &'a Config,
    /// The revision of the configuration: files that it names are read from there.
    pub files: Option<&'a dyn Source>,
    /// The revision whose Specs are planned: files that SOPS encrypted are read from there.
    pub head: Option<Arc<dyn Source>>,
    /// A cluster from the command line.
    pub given: &'a GivenCluster,
    /// Whether the live infrastructure is queried.
    pub live: Live,
    /// The states, with the key of their secrets.
    pub backend: Option<&'a StateBackend>,
    /// Whether an apply waits for readiness.
    pub wait: bool,
}

/// The runtimes of a run, and the secret references that they resolve.
pub struct Infrastructure {
    pub runtimes: RuntimeRegistry,
    pub references: Arc<SecretReferences>,
}

/// Clusters and Terraform; connected on demand. None with [`Live::Never`].
///
/// # Errors
/// An invalid setting.
pub async fn open(run: &RunContext, setup: &RuntimeSetup<'_>) -> Result<Infrastructure, UserError> {
    let mut parts = None;
    if setup.live != Live::Never {
        parts = Some(parts_of(run, setup).await?);
    }
    let secrets = setup.backend.map_or(&run.secrets, |backend| &backend.secrets);
    let reader = match &parts {
        // A connection of its own: the runtime itself asks for references.
        Some(parts) if setup.config.secrets.reads_clusters() => {
            Some(Arc::new(parts.another_kubernetes().await))
        }
        _ => None,
    };
    let reader = cluster_secrets(reader);
    let references = SecretReferences::new(
        run,
        &setup.config.secrets,
        secrets.clone(),
        setup.head.clone(),
        reader,
    );
    let references = Arc::new(references);
    let mut runtimes = RuntimeRegistry::new();
    if let Some(parts) = parts {
        let resolver = Arc::clone(&references) as Arc<dyn SecretResolver>;
        runtimes = runtimes
            .with(Arc::new(parts.kubernetes.with_references(Arc::clone(&resolver))))
            .with(Arc::new(parts.terraform.with_references(resolver)));
    }
    Ok(Infrastructure { runtimes, references })
}

/// The readers of the Secrets of clusters; without a connection they read nothing.
pub fn cluster_secrets(
    kubernetes: Option<Arc<Kubernetes>>,
) -> impl Fn(Option<&ClusterName>) -> Arc<dyn ClusterSecrets> {
    move |cluster| {
        Arc::new(ClusterReader {
            kubernetes: kubernetes.clone(),
            cluster: cluster.cloned(),
        })
    }
}

/// Reads Secrets of a configured cluster.
struct ClusterReader {
    /// `None` if no cluster is queried in this run.
    kubernetes: Option<Arc<Kubernetes>>,
    cluster: Option<ClusterName>,
}

#[async_trait]
impl ClusterSecrets for ClusterReader {
    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, SecretValue>, SecretProblem> {
        let unavailable = |why: String| SecretProblem::Unavailable { status: None, why };
        let kubernetes = self
            .kubernetes
            .as_ref()
            .ok_or_else(|| unavailable("no cluster is queried in this run".to_owned()))?;
        let found = kubernetes.secret_data(self.cluster.as_ref(), namespace, name);
        match found.await.map_err(|failure| unavailable(failure.message))? {
            SecretData::Found(data) => Ok(data),
            SecretData::Missing => Err(SecretProblem::Missing(None)),
            SecretData::Denied(failure) => Err(SecretProblem::Denied {
                status: Some(403),
                why: failure.message,
            }),
        }
    }
}

/// The runtimes, and how to connect to the clusters once more.
struct Parts {
    kubernetes: Kubernetes,
    terraform: Terraform,
    clusters: Vec<ClusterAccess>,
    options: Options,
    secrets: Secrets,
}

impl Parts {
    async fn another_kubernetes(&self) -> Kubernetes {
        Kubernetes::connect(self.clusters.clone(), self.options.clone(), self.secrets.clone()).await
    }
}

/// Clusters and Terraform, separately.
///
/// # Errors
/// An invalid setting.
pub async fn parts(run: &RunContext, setup: &RuntimeSetup<'_>) -> Result<(Kubernetes, Terraform), UserError> {
    let parts = parts_of(run, setup).await?;
    Ok((parts.kubernetes, parts.terraform))
}

async fn parts_of(run: &RunContext, setup: &RuntimeSetup<'_>) -> Result<Parts, UserError> {
    let RuntimeSetup {
        config,
        given,
        backend,
        ..
    } = *setup;
    let secrets = backend.map_or(&run.secrets, |backend| &backend.secrets);
    let checkout = run.checkout();
    let trusted = |what: &str, path: &str| -> Result<PathBuf, UserError> {
        checkout.trust(what, path.as_ref())?;
        Ok(PathBuf::from(path))
    };
    let mut clusters: Vec<_> = config
        .clusters
        .iter()
        .map(|(name, cluster)| access(run, name.clone(), cluster))
        .collect::<Result<_, _>>()?;
    if given.is_given() {
        let path = given.kubeconfig.as_ref().map(|path| run.dir.join(path));
        let credentials = ClusterCredentials::Kubeconfig {
            path,
            context: given.context.clone(),
            variable: None,
        };
        clusters.push(ClusterAccess {
            name: given_name(),
            credentials,
            requests: None,
        });
    }
    for (name, path) in given.of_stacks.iter().flatten() {
        clusters.push(ClusterAccess {
            name: name.clone(),
            credentials: ClusterCredentials::Kubeconfig {
                path: Some(PathBuf::from(path)),
                context: None,
                variable: None,
            },
            requests: None,
        });
    }
    let options = Options {
        wait: setup.wait,
        checkout: checkout.clone(),
        environment: CloudEnvironment::new(run.env.clone()),
        rules: match setup.files {
            Some(files) => health_rules::load(run, config, files)?,
            None => HealthRules::default().with_core(kcl_health::core(run, config)),
        },
        cancel: run.cancel.clone(),
        notes: {
            let notes = Arc::clone(&run.notes);
            RunNotes::new(move |text| notes.note(text))
        },
        ..configured_options(config)
    };
    let kubernetes = Kubernetes::connect(clusters.clone(), options.clone(), secrets.clone()).await;
    let mut terraform = TerraformOptions::new(secrets.clone());
    terraform.checkout = checkout.clone();
    terraform.notes.clone_from(&options.notes);
    terraform.binary = config
        .terraform
        .binary
        .as_ref()
        .map(|path| match path.contains('/') {
            true => trusted("`terraform.binary`", path),
            false => Ok(PathBuf::from(path)),
        })
        .transpose()?;
    terraform
        .credential_settings
        .clone_from(&config.terraform.credential_settings);
    terraform
        .provider_addresses
        .clone_from(&config.terraform.provider_addresses);
    terraform
        .provider_identities
        .clone_from(&config.terraform.provider_identities);
    let mirror = config.terraform.mirror.as_ref();
    terraform.mirror = mirror
        .map(|path| trusted("`terraform.mirror`", path))
        .transpose()?;
    let caches = caches::trusted_folder(run);
    terraform.plugin_cache = caches.map(|caches| caches.join("terraform"));
    terraform.key = backend
        .and_then(|backend| backend.states.sealer().cloned())
        .map(|sealer| Arc::new(StateSeal(sealer)) as Arc<dyn StateEncryption>);
    terraform.providers = config
        .terraform
        .providers
        .iter()
        .map(|provider| AllowedProvider {
            source: provider.source.clone(),
            version: provider.version.clone(),
            hashes: provider.hashes.clone(),
        })
        .collect();
    Ok(Parts {
        kubernetes,
        terraform: Terraform::new(terraform),
        clusters,
        options,
        secrets: secrets.clone(),
    })
}

/// Encrypts Terraform's part of the state with the key of the state.
pub struct StateSeal(pub(super) Sealer);

impl StateEncryption for StateSeal {
    fn seal(&self, document: &serde_json::Value) -> Result<serde_json::Value, UserError> {
        Ok(self.0.seal_value(document)?)
    }

    fn open(&self, sealed: &serde_json::Value) -> Result<serde_json::Value, UserError> {
        Ok(self.0.open_value(sealed)?)
    }
}

fn access(
    run: &RunContext,
    name: konverge_base::model::ClusterName,
    cluster: &config::ClusterConfig,
) -> Result<ClusterAccess, UserError> {
    let requests = cluster.max_concurrent_requests.map(|n| n as usize);
    if cluster.in_cluster {
        return Ok(ClusterAccess {
            name,
            credentials: ClusterCredentials::InCluster,
            requests,
        });
    }
    let path = match &cluster.kubeconfig_env {
        None => None,
        Some(variable) => {
            let path = run.var(variable).ok_or_else(|| {
                UserError::new(
                    ErrorKind::Config,
                    format!("cluster `{name}`: the variable {variable} is not set"),
                )
                .hint("set it to the path of a kubeconfig in the job's `env:`")
            })?;
            Some(PathBuf::from(path))
        }
    };
    let text = run.var("KONVERGE_KUBECONFIG").filter(|_| path.is_none());
    let credentials = match text {
        Some(text) => ClusterCredentials::Text {
            text: KubeconfigText::new(text.to_owned()),
            context: cluster.context.clone(),
        },
        None => ClusterCredentials::Kubeconfig {
            path,
            context: cluster.context.clone(),
            variable: cluster.kubeconfig_env.clone(),
        },
    };
    Ok(ClusterAccess {
        name,
        credentials,
        requests,
    })
}

/// How an apply treats the objects of a cluster, as the configuration says.
fn configured_options(config: &Config) -> Options {
    let apply = &config.apply;
    let defaults = Options::default();
    Options {
        conflicts: match apply.conflicts {
            config::ConflictsConfig::Restore => Conflicts::Restore,
            config::ConflictsConfig::Stop => Conflicts::Stop,
            config::ConflictsConfig::Take => Conflicts::Take,
            config::ConflictsConfig::Leave => Conflicts::Leave,
        },
        ready_timeout: apply
            .ready_timeout
            .map_or(defaults.ready_timeout, config::Span::duration),
        fail_early_after: apply
            .fail_early_after
            .map_or(defaults.fail_early_after, config::Span::duration),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_apply_waits_as_long_as_the_configuration_says() {
        let waits = |text: &str| {
            let options = configured_options(&Config::parse(text).unwrap());
            (options.conflicts, options.ready_timeout, options.fail_early_after)
        };
        let given = "version: 1\napply: {conflicts: leave, ready_timeout: 7m, fail_early_after: 45s}\n";
        assert_eq!(
            waits(given),
            (
                Conflicts::Leave,
                Duration::from_secs(420),
                Duration::from_secs(45)
            )
        );
        let defaults = Options::default();
        assert_eq!(
            waits("version: 1\n"),
            (
                Conflicts::Restore,
                defaults.ready_timeout,
                defaults.fail_early_after
            )
        );
    }
}
