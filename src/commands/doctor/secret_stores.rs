//! Logs in to each secret store, with the rights of previews and of applies. For a cluster it asks whether its Secrets
//! may be read; for the other stores it looks for their variables and identities. No secret is read.

use std::collections::BTreeSet;

use super::{DoctorFinding, RunContext};
use konverge_base::{
    error::{SharedError, UserError, chain},
    variables,
};
use konverge_cloud::secret_stores::{SecretProblem, SecretRights, SecretStore, SecretStoreError};
use konverge_config::{SecretStoreConfig, SecretStoreKind, SecretsConfig};
use konverge_kubernetes::Kubernetes;
use konverge_report::plural;
use konverge_run::secret_stores;

/// Prefix of an age identity.
const AGE_IDENTITY: &str = "AGE-SECRET-KEY-1";

/// Returns a finding for each store. `clusters` are those that can be connected to.
pub(super) async fn findings(
    run: &RunContext,
    config: &SecretsConfig,
    clusters: Option<&Kubernetes>,
) -> Vec<DoctorFinding> {
    let stores = secret_stores::open(run, config, &run.secrets, None, None);
    let mut findings = Vec::new();
    for (name, store) in &stores {
        let Some(configured) = config.stores.get(name) else {
            continue;
        };
        let what = format!("secret store {name}");
        let (at, asked) = match configured.kind {
            SecretStoreKind::Env => variables(run, configured),
            SecretStoreKind::Sops => (variables::SOPS_AGE_KEY.to_owned(), identities(run, configured)),
            SecretStoreKind::Kubernetes => access(configured, clusters).await,
            _ => ("login".to_owned(), log_in(configured, store.as_ref()).await),
        };
        findings.push(match asked {
            // On a developer's machine the credentials of jobs are usually missing. That is no fault.
            Err(SecretProblem::NoCredentials(why)) if run.var(variables::GITHUB_ACTIONS).is_none() => {
                DoctorFinding::unused(
                    what,
                    chain(&*why),
                    "nothing to do here: CI logs in by the job's own credentials",
                )
            }
            Err(SecretProblem::NotSet) if run.var(variables::GITHUB_ACTIONS).is_none() => {
                DoctorFinding::unused(
                    what,
                    format!("{at} is not set here"),
                    "nothing to do here: the job has its own variables",
                )
            }
            result => {
                let error = |problem| UserError::from(SecretStoreError::new(name, &at, problem));
                DoctorFinding::from_result(what, result.map_err(error))
            }
        });
    }
    findings
}

/// The name of a checked secret, and the store's response.
type Asked = (String, Result<String, SecretProblem>);

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// Checks that each variable that a rule names is set. A pattern may match none, because its purpose is unknown.
fn variables(run: &RunContext, configured: &SecretStoreConfig) -> Asked {
    let paths: BTreeSet<_> = configured.allow.iter().map(|rule| rule.paths.as_str()).collect();
    let named: Vec<_> = paths.iter().filter(|path| !is_pattern(path)).collect();
    let missing = named.iter().find(|name| run.var(name).is_none());
    if let Some(name) = missing {
        return ((**name).to_string(), Err(SecretProblem::NotSet));
    }
    let patterns = paths.len() - named.len();
    let says = format!(
        "{} set; {}",
        plural(named.len(), "allowed variable"),
        plural(patterns, "pattern")
    );
    (String::new(), Ok(says))
}

/// Checks that there is an age identity or a key service, and that the identity is valid.
fn identities(run: &RunContext, configured: &SecretStoreConfig) -> Result<String, SecretProblem> {
    let services = configured.key_services().len();
    let text = run.var(variables::SOPS_AGE_KEY).unwrap_or_default();
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let known = lines.iter().filter(|line| line.starts_with(AGE_IDENTITY)).count();
    if known < lines.len() {
        let why = "`SOPS_AGE_KEY` has a line that is not an age identity";
        return Err(SecretProblem::NoCredentials(why.into()));
    }
    if known + services == 0 {
        let why = "`SOPS_AGE_KEY` is not set, and `keys` of the store names no key service";
        return Err(SecretProblem::NoCredentials(why.into()));
    }
    Ok(format!(
        "{} of age, {}",
        plural(known, "identity"),
        plural(services, "key service")
    ))
}

/// Asks the cluster whether this job may read the Secrets of each namespace that a rule names.
async fn access(configured: &SecretStoreConfig, clusters: Option<&Kubernetes>) -> Asked {
    let unavailable = |why: SharedError| SecretProblem::Unavailable { status: None, why };
    let Some(clusters) = clusters else {
        let why = unavailable("the clusters cannot be connected to".into());
        return ("login".to_owned(), Err(why));
    };
    let rules = configured.allow.iter();
    let namespaces: BTreeSet<_> = rules
        .filter_map(|rule| Some(rule.paths.split_once('/')?.0))
        .filter(|namespace| !is_pattern(namespace))
        .collect();
    // If no rule names a namespace, ask for `default`: the response still shows that the cluster answers.
    let asked = if namespaces.is_empty() {
        vec!["default"]
    } else {
        namespaces.iter().copied().collect()
    };
    for namespace in asked {
        let at = || format!("{namespace}/*");
        match clusters
            .may_read_secrets(configured.cluster.as_ref(), namespace)
            .await
        {
            Err(failure) => return (at(), Err(unavailable(failure.message.into()))),
            Ok(false) if !namespaces.is_empty() => {
                let why = "the role of this job may not get Secrets in this namespace".into();
                return (at(), Err(SecretProblem::Denied { status: None, why }));
            }
            Ok(_) => {}
        }
    }
    let says = if namespaces.is_empty() {
        "the cluster responds, but no rule names a namespace whose Secrets could be checked".to_owned()
    } else {
        let namespaces: Vec<_> = namespaces.into_iter().collect();
        format!("may read the Secrets of {}", namespaces.join(", "))
    };
    (String::new(), Ok(says))
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
    Ok(format!("logged in; {}", plural(configured.allow.len(), "rule")))
}
