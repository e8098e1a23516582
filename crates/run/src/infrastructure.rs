//! [`Infrastructure`]: the clusters and Terraform of a run, from the effective configuration.

use std::{path::PathBuf, sync::Arc};

use crate::{RunBuilder, RunContext, caches, cluster_selection::given_name, health_evaluator, health_rules};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, spec::Spec},
    variables,
};
use konverge_cloud::CloudEnvironment;
use konverge_config::{self as config, Config, EffectiveStack};
use konverge_engine::runtime::RunNotes;
use konverge_kubernetes::{
    ClusterAccess, ClusterCredentials, Conflicts, KubeconfigText, Kubernetes, Options, health::HealthRules,
};
use konverge_secrets::Secrets;
use konverge_state::Sealer;
use konverge_terraform::{AllowedProvider, StateEncryption, Terraform, TerraformOptions};

/// The Kubernetes and Terraform runtimes. Each connects on demand, and only once.
pub struct Infrastructure {
    /// The runtime of Kubernetes objects.
    pub kubernetes: Kubernetes,
    /// The runtime of Terraform resources.
    pub terraform: Terraform,
}

impl RunBuilder<'_> {
    /// Opens the clusters and Terraform, whatever `live` says. Each connects with its first request.
    ///
    /// # Errors
    /// A setting is invalid.
    pub async fn connect(&self) -> Result<Infrastructure, UserError> {
        let (run, config, given) = (self.run, &self.config, &self.given);
        let backend = self.backend.as_ref();
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
        let of_file = |name, path, context| ClusterAccess {
            name,
            credentials: ClusterCredentials::Kubeconfig {
                path,
                context,
                variable: None,
            },
            requests: None,
        };
        if given.is_given() {
            let path = given.kubeconfig.as_ref().map(|path| run.dir.join(path));
            clusters.push(of_file(given_name(), path, given.context.clone()));
        }
        // Only a user's machine has such kubeconfigs: in `ci` a stack must not name a file.
        for (name, path) in given.of_stacks.iter().flatten() {
            clusters.push(of_file(name.clone(), Some(PathBuf::from(path)), None));
        }
        let options = Options {
            wait: self.waits,
            checkout: checkout.clone(),
            environment: CloudEnvironment::new(run.env.clone()),
            rules: match &self.rule_files {
                Some(files) => health_rules::load(run, config, files.as_ref())?,
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

    use crate::test_fixture::{run, secrets};
    use konverge_base::model::spec::Spec;
    use serde_json::json;

    #[test]
    fn a_cluster_is_reached_by_what_its_configuration_names_alone() {
        let access = |cluster: &str, variables: &[(&str, &str)]| {
            let config = Config::parse(&format!("version: 1\nclusters: {{prod: {{{cluster}}}}}\n")).unwrap();
            let (name, cluster) = config.clusters.first_key_value().unwrap();
            let access = access(&run(variables), name.clone(), cluster)?;
            Ok::<_, UserError>(match access.credentials {
                ClusterCredentials::InCluster => "in the cluster".to_owned(),
                ClusterCredentials::Text { .. } => "a text".to_owned(),
                ClusterCredentials::Kubeconfig { path, .. } => format!("{path:?}"),
            })
        };
        let text = ("KONVERGE_KUBECONFIG", "apiVersion: v1");
        let file = ("PROD", "/kube/prod");
        assert_eq!(
            access("in_cluster: true", &[text, file]).unwrap(),
            "in the cluster"
        );
        assert_eq!(
            access("kubeconfig_env: PROD", &[text, file]).unwrap(),
            r#"Some("/kube/prod")"#
        );
        assert_eq!(access("", &[text, file]).unwrap(), "a text");
        assert_eq!(access("", &[file]).unwrap(), "None");
        // Another kubeconfig would be that of another cluster.
        let unset = access("kubeconfig_env: PROD", &[text]).unwrap_err();
        assert!(unset.message.contains("the variable PROD is not set"), "{unset}");
    }

    #[test]
    fn a_spec_does_not_choose_the_identity_of_its_provider() {
        let config = Config::parse("version: 1\n").unwrap();
        let check = |provider: serde_json::Value| {
            let resource = json!({
                "id": "hashicorp:aws:aws_s3_bucket:web", "type": "Terraform", "attributes": {"bucket": "web"},
                "extensions": {"provider": "registry.terraform.io/hashicorp/aws/5.0.0", "providerMeta": provider,
                               "resourceType": "aws_s3_bucket"},
            });
            let spec = Spec {
                resources: vec![serde_json::from_value(resource).unwrap()],
                ..Spec::default()
            };
            let rules = config.for_stack(&crate::test_fixture::stack("shop/prod"));
            check_provider_settings(&config, &rules, secrets(), &spec)
        };
        check(json!({"region": "eu-central-1"})).unwrap();
        for chosen in [
            json!({"region": "eu-central-1", "profile": "admin"}),
            json!({"assume_role": [{"role_arn": "arn:aws:iam::111122223333:role/admin"}]}),
            json!({"endpoints": [{"s3": "https://evil.example"}]}),
        ] {
            assert!(check(chosen.clone()).is_err(), "{chosen}");
        }
    }
}
