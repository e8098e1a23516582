//! [`ClusterLogin`]: the tokens that a kubeconfig would get from `aws`, `gke-gcloud-auth-plugin` or `kubelogin`.

use std::{collections::BTreeMap, path::Path, time::Duration};

use kube::config::ExecConfig;
use tokio::{sync::Mutex, time::Instant};

use konverge_base::retry::{RetryDecision, RetryPolicy};
use konverge_cloud::{AccessToken, AzureLogin, CloudEnvironment, CloudError, EksLogin, GoogleLogin};

/// A token with less than this left is renewed.
const MARGIN: Duration = Duration::from_secs(120);

/// How to log in at a cluster without a credentials plugin.
#[derive(Debug, Clone)]
pub(crate) enum ClusterLogin {
    Eks(EksLogin),
    Gke(GoogleLogin),
    Aks {
        azure: AzureLogin,
        /// The server application of the cluster; `None` for the one of most clusters.
        server: Option<String>,
    },
}

impl ClusterLogin {
    /// The login that stands for a plugin with its arguments and variables; `None` for other plugins, and for
    /// arguments that mean another identity than that of the environment.
    pub(crate) fn of_plugin(plugin: &ExecConfig, environment: &CloudEnvironment) -> Option<Self> {
        let command = Path::new(plugin.command.as_deref()?).file_name()?.to_str()?;
        let (words, flags) = parse_arguments(plugin.args.as_deref().unwrap_or_default())?;
        let mut environment = environment.clone();
        for variable in plugin.env.iter().flatten() {
            environment = environment.with(variable.get("name")?, variable.get("value")?);
        }
        let flag = |name: &str| flags.get(name).map(|value| (*value).to_owned());
        let has_only = |known: &[&str]| flags.keys().all(|name| known.contains(name));
        match (command, words.as_slice()) {
            ("aws", ["eks", "get-token"]) => {
                let known = ["cluster-name", "cluster-id", "region", "output"];
                if !has_only(&known) || environment.var("AWS_PROFILE").is_some() {
                    return None;
                }
                let cluster = flag("cluster-name").or_else(|| flag("cluster-id"))?;
                Some(Self::Eks(EksLogin::new(cluster, flag("region"), environment)))
            }
            ("gke-gcloud-auth-plugin", []) => has_only(&["use_application_default_credentials"])
                .then(|| Self::Gke(GoogleLogin::new(environment))),
            ("kubelogin", ["get-token"]) => {
                let known = ["login", "server-id", "client-id", "tenant-id", "environment"];
                if !has_only(&known) {
                    return None;
                }
                // For other kinds of login these name the application that asks a person.
                if matches!(flags.get("login"), Some(&("workloadidentity" | "spn"))) {
                    for (name, variable) in
                        [("client-id", "AZURE_CLIENT_ID"), ("tenant-id", "AZURE_TENANT_ID")]
                    {
                        if let Some(value) = flags.get(name) {
                            environment = environment.with(variable, value);
                        }
                    }
                }
                Some(Self::Aks {
                    azure: AzureLogin::new(environment),
                    server: flag("server-id"),
                })
            }
            _ => None,
        }
    }

    /// Returns true if the identity is one that the plugin cannot use: the token that GitHub gives the job.
    pub(crate) fn is_by_job(&self) -> bool {
        match self {
            Self::Eks(eks) => eks.is_by_job(),
            Self::Gke(google) => google.is_by_job(),
            Self::Aks { azure, .. } => azure.is_by_job(),
        }
    }

    async fn token(&self) -> Result<AccessToken, CloudError> {
        match self {
            Self::Eks(eks) => eks.token().await,
            Self::Gke(google) => google.gke_token().await,
            Self::Aks { azure, server } => azure.aks_token(server.as_deref()).await,
        }
    }
}

/// The words and the flags of a command line; `None` for a flag in the short form. A flag without a value has
/// an empty one.
fn parse_arguments(arguments: &[String]) -> Option<(Vec<&str>, BTreeMap<&str, &str>)> {
    let mut words = Vec::new();
    let mut flags = BTreeMap::new();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--") else {
            if argument.starts_with('-') {
                return None;
            }
            words.push(argument);
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some(pair) => pair,
            None => (
                flag,
                rest.next_if(|next| !next.starts_with('-')).unwrap_or_default(),
            ),
        };
        flags.insert(name, value);
    }
    Some((words, flags))
}

/// The token of a cluster, renewed before its end.
#[derive(Debug)]
pub(crate) struct ClusterToken {
    login: ClusterLogin,
    retry: RetryPolicy,
    current: Mutex<Option<(AccessToken, Instant)>>,
}

impl ClusterToken {
    pub(crate) fn new(login: ClusterLogin) -> Self {
        Self {
            login,
            retry: RetryPolicy::default(),
            current: Mutex::default(),
        }
    }

    /// The token; `learn` gets each new one before it is used.
    ///
    /// # Errors
    /// The environment names no identity, or the cloud refuses it.
    pub(crate) async fn bearer(&self, learn: impl Fn(&str)) -> Result<String, CloudError> {
        let mut current = self.current.lock().await;
        if let Some((token, end)) = current.as_ref()
            && *end > Instant::now() + MARGIN
        {
            return Ok(token.bearer.clone());
        }
        let classify = |error: &CloudError| match error {
            CloudError::Unavailable { .. } => RetryDecision::Retry,
            _ => RetryDecision::GiveUp,
        };
        let token = self.retry.run(classify, || self.login.token()).await?;
        learn(&token.bearer);
        let bearer = token.bearer.clone();
        let end = Instant::now() + token.lifetime;
        *current = Some((token, end));
        Ok(bearer)
    }
}
