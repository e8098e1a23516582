//! How a cluster is reached, and the client that reaches it: our retries, not the library's.

use std::path::PathBuf;

use kube::{client::AuthError, config::KubeConfigOptions};

use super::kubeconfig::{self, ReadError};
use crate::{
    checkout::Checkout,
    error::{ErrorKind, Failure, chain},
    model::ClusterName,
};

/// A cluster by the name that `konverge.yaml` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The name.
    pub name: ClusterName,
    /// How it is reached.
    pub credentials: Credentials,
    /// Requests under way at once; default 16.
    pub requests: Option<usize>,
}

/// Where address and credentials come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A kubeconfig: client certificates, tokens, exec plugins, OIDC.
    Kubeconfig {
        /// The file; `None` for `$KUBECONFIG`, else `~/.kube/config`.
        path: Option<PathBuf>,
        /// The context; `None` for the current one.
        context: Option<String>,
    },
    /// The pod's own service account.
    InCluster,
}

/// Makes the client, and says which server it asks; nothing is sent yet.
pub(super) async fn client(
    access: &ClusterAccess,
    checkout: &Checkout,
) -> Result<(kube::Client, String), Failure> {
    let mut config = config(access, checkout).await?;
    config.default_retry = false;
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = kube::Client::try_from(config).map_err(|error| {
        let why = match &error {
            kube::Error::Auth(error) => explained(error),
            other => chain(other),
        };
        let what = format!("cluster `{}`: no client can be made: {why}", access.name);
        Failure::new(ErrorKind::Kubernetes, what)
            .hint("`kubectl auth whoami` uses the kubeconfig in the same way, and shows who it makes you")
    })?;
    Ok((client, server))
}

/// Why credentials could not be had. The library's own words hold what a plugin was given in its environment and what it
/// answered, either of which may be a secret: only its end is told, and what it wrote to its standard error.
pub(super) fn explained(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let words = String::from_utf8_lossy(&out.stderr);
            let words: Vec<_> = words
                .lines()
                .map(|line| line.escape_debug().to_string())
                .collect();
            format!(
                "the credentials plugin ended with {}: {}",
                out.status,
                words.join("; ")
            )
        }
        AuthError::AuthExecParse(_) => "the credentials plugin's answer is no `ExecCredential`".to_owned(),
        other => chain(other),
    }
}

async fn config(access: &ClusterAccess, checkout: &Checkout) -> Result<kube::Config, Failure> {
    let name = &access.name;
    match &access.credentials {
        Credentials::InCluster => kube::Config::incluster().map_err(|error| {
            Failure::new(
                ErrorKind::Config,
                format!(
                    "cluster `{name}` is `in_cluster`, but this is no pod with a service account: {}",
                    chain(&error)
                ),
            )
            .hint("outside of the cluster give it a kubeconfig: `kubeconfig_env` under `clusters`")
        }),
        Credentials::Kubeconfig { path, context } => {
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = match kubeconfig::read(path.as_deref(), context.as_deref(), checkout) {
                Ok(file) => kube::Config::from_custom_kubeconfig(file, &options).await,
                Err(ReadError::Kubeconfig(error)) => Err(error),
                Err(ReadError::Untrusted(error)) => {
                    return Err(Failure::from(error).within(format!("cluster `{name}`")));
                }
            };
            config.map_err(|error| {
                let place = path
                    .as_ref()
                    .map_or("the kubeconfig".to_owned(), |p| format!("`{}`", p.display()));
                Failure::new(
                    ErrorKind::Config,
                    format!("cluster `{name}`: {place} can not be used: {}", chain(&error)),
                )
                .hint("`kubectl config get-contexts` lists what a kubeconfig holds")
            })
        }
    }
}
