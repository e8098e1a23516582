//! [`ClusterLogin`]: gets the tokens that a kubeconfig would get from the plugins `aws`,
//! `gke-gcloud-auth-plugin` or `kubelogin`.

use std::{collections::BTreeMap, path::Path, time::Duration};

use kube::config::ExecConfig;
use tokio::{sync::Mutex, time::Instant};

use konverge_base::{
    retry::{RetryDecision, RetryPolicy},
    variables,
};
use konverge_cloud::{
    AccessToken, AzureLogin, CloudEnvironment, CloudError, EksLogin, GoogleLogin, StackIdentity,
};

/// A token is renewed if less than this is left.
const MARGIN: Duration = Duration::from_secs(120);

/// A login at a cluster that replaces a credentials plugin.
#[derive(Debug, Clone)]
pub(crate) enum ClusterLogin {
    Eks(EksLogin),
    Gke(GoogleLogin),
    Aks {
        azure: AzureLogin,
        /// The server application of the cluster; `None` for the one that AKS manages.
        server: Option<String>,
    },
}

impl ClusterLogin {
    /// Returns the login that replaces a plugin with these arguments and variables. `None` for an unknown
    /// plugin, and for arguments that select another identity than the environment's.
    pub(crate) fn of_plugin(plugin: &ExecConfig, environment: &CloudEnvironment) -> Option<Self> {
        let command = Path::new(plugin.command.as_deref()?).file_name()?.to_str()?;
        let (words, flags) = parse_arguments(plugin.args.as_deref().unwrap_or_default())?;
        let mut environment = environment.clone();
        for variable in plugin.env.iter().flatten() {
            environment = environment.with(variable.get("name")?, variable.get("value")?.as_str());
        }
        let flag = |name: &str| flags.get(name).map(|value| (*value).to_owned());
        let has_only = |known: &[&str]| flags.keys().all(|name| known.contains(name));
        match (command, words.as_slice()) {
            ("aws", ["eks", "get-token"]) => {
                let known = ["cluster-name", "cluster-id", "region", "output"];
                if !has_only(&known) || environment.var(variables::AWS_PROFILE).is_some() {
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
                // With other login methods, these flags name the application through which a person logs in,
                // so they are ignored.
                if matches!(flags.get("login"), Some(&("workloadidentity" | "spn"))) {
                    for (name, variable) in [
                        ("client-id", variables::AZURE_CLIENT_ID),
                        ("tenant-id", variables::AZURE_TENANT_ID),
                    ] {
                        environment = environment.with(variable, flags.get(name).copied());
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

    /// Returns the login of a stack that replaces a cloud's plugin; `None` for a plugin of no cloud.
    ///
    /// # Errors
    /// The plugin's arguments or variables select another identity than the stack's, or the stack has none at
    /// that cloud.
    pub(crate) fn of_stack(
        plugin: &ExecConfig,
        identity: &StackIdentity,
        environment: &CloudEnvironment,
    ) -> Result<Option<Self>, ForeignIdentity> {
        let command = plugin.command.as_deref().unwrap_or_default();
        let command = Path::new(command).file_name().and_then(|name| name.to_str());
        let (has_login, login) = match command {
            Some("aws") => (
                identity.aws.is_some(),
                Self::eks_of_stack(plugin, identity, environment),
            ),
            Some("gke-gcloud-auth-plugin") => {
                let is_plain = Self::of_plugin(plugin, &CloudEnvironment::default()).is_some();
                let google = identity.google.clone();
                (google.is_some(), google.filter(|_| is_plain).map(Self::Gke))
            }
            Some("kubelogin") => {
                // The application and the tenant come from the login, even if the plugin's arguments name
                // others.
                let server = match Self::of_plugin(plugin, &CloudEnvironment::default()) {
                    Some(Self::Aks { server, .. }) => Some(server),
                    _ => None,
                };
                let azure = identity.azure.clone();
                let has_login = azure.is_some();
                let both = azure.zip(server);
                (has_login, both.map(|(azure, server)| Self::Aks { azure, server }))
            }
            _ => return Ok(None),
        };
        let (command, name) = (command.unwrap_or_default().to_owned(), identity.name.clone());
        match (has_login, login) {
            (_, Some(login)) => Ok(Some(login)),
            (true, None) => Err(ForeignIdentity::Arguments { command, login: name }),
            (false, None) => Err(ForeignIdentity::NoLogin { command, login: name }),
        }
    }

    /// Returns the login at EKS. A role among the plugin's arguments must be one of the stack's roles; a
    /// preview uses the login's role for previews in any case.
    fn eks_of_stack(
        plugin: &ExecConfig,
        identity: &StackIdentity,
        environment: &CloudEnvironment,
    ) -> Option<Self> {
        let arguments = plugin.args.as_deref().unwrap_or_default();
        let (words, flags) = parse_arguments(arguments)?;
        let known = ["cluster-name", "cluster-id", "region", "output", "role-arn"];
        let is_known = words == ["eks", "get-token"] && flags.keys().all(|name| known.contains(name));
        let names_other = flags
            .get("role-arn")
            .is_some_and(|role| !identity.aws_roles.iter().any(|own| own == role));
        let variable = |wanted: &str| {
            let mut variables = plugin.env.iter().flatten();
            variables
                .find(|variable| variable.get("name").is_some_and(|name| name == wanted))
                .and_then(|variable| variable.get("value").cloned())
        };
        if !is_known || names_other || variable(variables::AWS_PROFILE).is_some() {
            return None;
        }
        let flag = |name: &str| flags.get(name).map(|value| (*value).to_owned());
        let cluster = flag("cluster-name").or_else(|| flag("cluster-id"))?;
        // A region is not an identity, so without one the job's region is used, as without a login.
        let of_job = |name: &str| environment.var(name).map(str::to_owned);
        let region = flag("region")
            .or_else(|| variable(variables::AWS_REGION))
            .or_else(|| variable(variables::AWS_DEFAULT_REGION))
            .or_else(|| identity.aws_region.clone())
            .or_else(|| of_job(variables::AWS_REGION))
            .or_else(|| of_job(variables::AWS_DEFAULT_REGION));
        Some(Self::Eks(EksLogin::of_login(
            identity.aws.clone()?,
            cluster,
            region,
        )))
    }

    /// Returns true if the identity is the token that GitHub gives the job, which a plugin cannot use.
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

/// The identity in a kubeconfig conflicts with the login of the stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForeignIdentity {
    #[error("the arguments of `{}` in the kubeconfig mean another identity than the login `{login}`", command.escape_debug())]
    Arguments { command: String, login: String },
    #[error("`{}` in the kubeconfig logs in at a cloud where the login `{login}` has no identity", command.escape_debug())]
    NoLogin { command: String, login: String },
}

impl ForeignIdentity {
    /// Returns the hint for the user.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Arguments { .. } => {
                "remove `--profile`, AWS_PROFILE and other arguments that name an identity; `--role-arn` may name a role of the login"
            }
            Self::NoLogin { .. } => {
                "add the cloud of the cluster to this login under `logins` in konverge.yaml; a stack with a login gets nothing of the job's identity"
            }
        }
    }
}

/// Splits arguments into words and flags; `None` if there is a flag in the short form. A flag without a value
/// has an empty one.
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

/// The token of a cluster, renewed before it expires.
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

    /// Returns the token. `learn` is called with each new token before it is used, so that it is masked.
    ///
    /// # Errors
    /// The environment provides no identity, or the cloud refuses it.
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
