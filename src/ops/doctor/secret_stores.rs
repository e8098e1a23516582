//! Logs in to each secret store, with the rights of previews and of applies. No secret is read.

use super::{DoctorFinding, RunContext};
use crate::{
    config::{SecretStoreConfig, SecretStoreKind, SecretsConfig},
    error::UserError,
    ops::{runtime_factory::cluster_secrets, secret_stores},
    secret_stores::{SecretProblem, SecretRights, SecretStore, SecretStoreError},
};

/// A finding for each store.
pub(super) async fn findings(run: &RunContext, config: &SecretsConfig) -> Vec<DoctorFinding> {
    let stores = secret_stores::open(run, config, &run.secrets, None, cluster_secrets(None));
    let mut findings = Vec::new();
    for (name, store) in &stores {
        let Some(configured) = config.stores.get(name) else {
            continue;
        };
        let what = format!("secret store {name}");
        findings.push(match log_in(configured, store.as_ref()).await {
            // The credentials of jobs are seldom on a machine.
            Err(SecretProblem::NoCredentials(why)) if run.var("GITHUB_ACTIONS").is_none() => {
                DoctorFinding::unused(
                    what,
                    why,
                    "nothing to do here: CI logs in by the job's own credentials",
                )
            }
            result => {
                let error = |problem| UserError::from(SecretStoreError::new(name, "login", problem));
                DoctorFinding::from_result(what, result.map_err(error))
            }
        });
    }
    findings
}

async fn log_in(configured: &SecretStoreConfig, store: &dyn SecretStore) -> Result<String, SecretProblem> {
    let preview_role = configured
        .auth
        .as_ref()
        .and_then(|auth| auth.preview_role.as_ref());
    let previews = preview_role.map(|_| SecretRights::Versions);
    for rights in previews.into_iter().chain([SecretRights::Values]) {
        store.log_in(rights).await?;
    }
    Ok(match configured.kind {
        SecretStoreKind::Env => "the variables of this job".to_owned(),
        SecretStoreKind::Kubernetes => "the Secrets of a cluster".to_owned(),
        SecretStoreKind::Sops => "files of the repository".to_owned(),
        SecretStoreKind::Vault
        | SecretStoreKind::Aws
        | SecretStoreKind::Ssm
        | SecretStoreKind::Gcp
        | SecretStoreKind::Azure
        | SecretStoreKind::AliKms => {
            let rules = configured.allow.len();
            format!("logged in; {}", crate::report::plural(rules, "rule"))
        }
    })
}
