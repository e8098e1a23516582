//! [`Infrastructure`]: the clusters and Terraform of a run, from the effective configuration.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

use crate::{
    RunContext, StateBackend, caches,
    cluster_selection::{GivenCluster, given_name},
    health_evaluator, health_rules,
};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    model::{ClusterName, file_source::Source, spec::Spec},
    variables,
};
use konverge_cloud::{
    CloudEnvironment,
    secret_stores::{ClusterSecrets, SecretProblem},
};
use konverge_config::{self as config, Config, EffectiveStack};
use konverge_engine::runtime::RunNotes;
use konverge_kubernetes::{
    ClusterAccess, ClusterCredentials, Conflicts, KubeconfigText, Kubernetes, Options, SecretData,
    health::HealthRules,
};
use konverge_secrets::{SecretValue, Secrets};
use konverge_state::Sealer;
use konverge_terraform::{AllowedProvider, StateEncryption, Terraform, TerraformOptions};

/// The settings that determine the infrastructure of a run.
pub(super) struct InfrastructureSettings<'a> {
    pub run: &'a RunContext,
    /// The effective configuration.
    pub config: &'a Config,
    /// The revision from which the readiness rules are read.
    pub rule_files: Option<&'a dyn Source>,
    /// A cluster from the command line.
    pub given: &'a GivenCluster,
    /// The states. Their key encrypts the secrets in the Terraform state.
    pub backend: Option<&'a StateBackend>,
    /// True if an apply waits until its objects are ready.
    pub waits: bool,
}

/// The Kubernetes and Terraform runtimes. Each connects on demand, and only once.
pub struct Infrastructure {
    /// The runtime of Kubernetes objects.
    pub kubernetes: Kubernetes,
    /// The runtime of Terraform resources.
    pub terraform: Terraform,
}

/// Returns a factory of readers for the Secrets of clusters. Without clusters, the readers read nothing.
pub fn cluster_secrets(
    kubernetes: Option<Kubernetes>,
) -> impl Fn(Option<&ClusterName>) -> Arc<dyn ClusterSecrets> {
    move |cluster| {
        Arc::new(ClusterReader {
            kubernetes: kubernetes.clone(),
            cluster: cluster.cloned(),
        })
    }
}

/// Reads Secrets of one configured cluster.
struct ClusterReader {
    /// The clusters of the run; `None` if the run queries no cluster.
    kubernetes: Option<Kubernetes>,
    cluster: Option<ClusterName>,
}

#[async_trait]
impl ClusterSecrets for ClusterReader {
    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, SecretValue>, SecretProblem> {
        let unavailable = |why: SharedError| SecretProblem::Unavailable { status: None, why };
        let kubernetes = self
            .kubernetes
            .as_ref()
            .ok_or_else(|| unavailable("no cluster is queried in this run".into()))?;
        let found = kubernetes.secret_data(self.cluster.as_ref(), namespace, name);
        match found
            .await
            .map_err(|failure| unavailable(failure.message.into()))?
        {
            SecretData::Found(data) => Ok(data),
            SecretData::Missing => Err(SecretProblem::Missing(None)),
            SecretData::Denied(failure) => Err(SecretProblem::Denied {
                status: Some(403),
                why: failure.message.into(),
            }),
        }
    }
}

/// Creates the Kubernetes and Terraform runtimes. Each connects with its first request.
///
/// # Errors
/// A setting is invalid.
pub(super) async fn connect(settings: &InfrastructureSettings<'_>) -> Result<Infrastructure, UserError> {
    let InfrastructureSettings {
        run,
        config,
        rule_files,
        given,
        backend,
        waits,
    } = *settings;
    let secrets = backend.map_or(&run.secrets, |backend| &backend.secrets);
    // No executable may come from the checkout, because a pull request could have put it there.
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
    // Only a user's machine has such kubeconfigs: in `ci` a stack must not name a file.
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
        wait: waits,
        checkout: checkout.clone(),
        environment: CloudEnvironment::new(run.env.clone()),
        rules: match rule_files {
            Some(files) => health_rules::load(run, config, files)?,
            None => HealthRules::default().with_evaluator(health_evaluator::new(run, config)),
        },
        cancel: run.cancel.clone(),
        notes: {
            let notes = Arc::clone(&run.notes);
            RunNotes::new(move |note| notes.say(note))
        },
        ..configured_options(config)
    };
    let notes = options.notes.clone();
    let kubernetes = Kubernetes::connect(clusters, options, secrets.clone()).await;
    let mut terraform = provider_rules(config, secrets.clone());
    terraform.checkout = checkout.clone();
    terraform.notes = notes;
    terraform.binary = config
        .terraform
        .binary
        .as_ref()
        .map(|path| {
            // Only a path can be checked here. A name is looked up in `PATH` later.
            if path.contains('/') {
                trusted("`terraform.binary`", path)
            } else {
                Ok(PathBuf::from(path))
            }
        })
        .transpose()?;
    let mirror = config.terraform.mirror.as_ref();
    terraform.mirror = mirror
        .map(|path| trusted("`terraform.mirror`", path))
        .transpose()?;
    // Plugins are executed, so a pull request must not be able to write into their cache.
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
    Ok(Infrastructure {
        kubernetes,
        terraform: Terraform::new(terraform),
    })
}

/// Returns an error if a Spec sets an identity or an address of a provider that the configuration does not allow.
/// Checked before any login, and in every kind of preview.
pub(super) fn check_provider_settings(
    config: &Config,
    rules: &EffectiveStack,
    secrets: Secrets,
    wanted: &Spec,
) -> Result<(), UserError> {
    let mut options = provider_rules(config, secrets);
    options.allow_identities(&rules.provider_identities);
    for resource in &wanted.resources {
        konverge_terraform::check_provider_settings(resource, &options)?;
    }
    Ok(())
}

/// Returns options that hold only the rules for what a Spec may set on its providers; everything else is a default.
fn provider_rules(config: &Config, secrets: Secrets) -> TerraformOptions {
    let mut options = TerraformOptions::new(secrets);
    let rules = &config.terraform;
    options.credential_settings.clone_from(&rules.credential_settings);
    options.provider_addresses.clone_from(&rules.provider_addresses);
    options.provider_identities.clone_from(&rules.provider_identities);
    options
}

/// Encrypts the Terraform part of the state with the key of the state.
pub(super) struct StateSeal(pub(super) Sealer);

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
    name: ClusterName,
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
                .hint("set the variable to the path of a kubeconfig in the job's `env:`")
            })?;
            Some(PathBuf::from(path))
        }
    };
    let text = run.var(variables::KONVERGE_KUBECONFIG).filter(|_| path.is_none());
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

/// Returns the configured options for objects of a cluster.
fn configured_options(config: &Config) -> Options {
    let apply = &config.apply;
    let defaults = Options::default();
    Options {
        conflicts: match apply.conflicts {
            config::ConflictsConfig::Restore => Conflicts::Restore,
            config::ConflictsConfig::Stop => Conflicts::Stop,
            config::ConflictsConfig::Write => Conflicts::Write,
            config::ConflictsConfig::Leave => Conflicts::Leave,
        },
        ready_timeout: apply
            .ready_timeout
            .map_or(defaults.ready_timeout, config::Span::duration),
        hook_timeout: apply
            .hooks
            .timeout
            .map_or(defaults.hook_timeout, config::Span::duration),
        fail_early_after: apply
            .fail_early_after
            .map_or(defaults.fail_early_after, config::Span::duration),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
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
