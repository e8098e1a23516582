//! Connects to a cluster, with Konverge's retries instead of the library's.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use base64::Engine as _;
use http::{HeaderValue, header};
use kube::{
    client::{AuthError, Body, ClientBuilder, ConfigExt as _},
    config::{AuthInfo, ExecInteractiveMode, KubeConfigOptions, KubeconfigError},
};
use secrecy::ExposeSecret as _;

use super::{
    cluster_login::{ClusterLogin, ClusterToken},
    kubeconfig::{self, LoginOptions, ReadError, TrustedKubeconfig},
    options::Options,
    transport,
};
use konverge_base::{
    checkout::Untrusted,
    error::{ErrorKind, UserError, chain},
    model::ClusterName,
};
use konverge_secrets::{AddressParts, Secrets, credential_in, is_secret_name, without_secrets};

/// A cluster by its name in `konverge.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The cluster's name in `konverge.yaml`.
    pub name: ClusterName,
    /// The source of the address and credentials.
    pub credentials: ClusterCredentials,
    /// The maximum number of concurrent requests; default 16.
    pub requests: Option<usize>,
}

/// The source of a cluster's address and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterCredentials {
    /// A kubeconfig: client certificates, tokens, exec plugins, OIDC.
    Kubeconfig {
        /// The file; `None` for `$KUBECONFIG`, or else `~/.kube/config`.
        path: Option<PathBuf>,
        /// The context; `None` for the current one.
        context: Option<String>,
        /// The environment variable with the path. Its value is not shown in messages, because the user may
        /// have named the wrong variable.
        variable: Option<String>,
    },
    /// The text of a kubeconfig, such as from an input of the action.
    Text {
        /// The kubeconfig itself.
        text: KubeconfigText,
        /// The context; `None` for the current one.
        context: Option<String>,
    },
    /// The service account of the pod.
    InCluster,
}

/// The text of a kubeconfig. `Debug` does not print it, because it may contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct KubeconfigText(String);

impl KubeconfigText {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for KubeconfigText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeconfigText(…)")
    }
}

/// A connected client of a cluster.
pub(crate) struct ConnectedClient {
    pub client: kube::Client,
    /// The address of the server.
    pub server: String,
    /// True if the login may depend on the job: by a credentials plugin, or by Konverge instead of one.
    pub by_plugin: bool,
}

/// Builds the client without a request. All its credentials are added to `secrets`, so that they are masked.
pub(crate) async fn client(
    access: &ClusterAccess,
    options: &Options,
    secrets: &Secrets,
) -> Result<ConnectedClient, UserError> {
    let LoadedConfig {
        mut config,
        login,
        by_plugin,
    } = config(access, options).await?;
    config.default_retry = false;
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    learn(&config.auth_info, secrets);
    // Without a terminal nobody can answer a plugin's questions. Its output is then captured, and shown
    // masked.
    if let Some(exec) = config
        .auth_info
        .exec
        .as_mut()
        .filter(|_| !std::io::stdin().is_terminal())
    {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    if let Some(credential) = credential_in(&server, AddressParts::default()) {
        let what = format!(
            "cluster `{}`: the address of its server holds credentials: {credential}",
            access.name
        );
        return Err(UserError::new(ErrorKind::Kubernetes, what)
            .hint("write the credentials to `users` of the kubeconfig: addresses are shown and logged"));
    }
    let client = match login {
        Some(login) => cloud_client(config, ClusterToken::new(login), secrets),
        None => learning_client(config, secrets),
    };
    let client = client.map_err(|error| {
        let why = match &error {
            kube::Error::Auth(error) => explain(error),
            other => chain(other),
        };
        let what = format!("cluster `{}`: cannot create a client: {why}", access.name);
        UserError::new(ErrorKind::Kubernetes, secrets.mask(&what))
            .hint("`kubectl auth whoami` uses the kubeconfig in the same way, and shows your identity")
    })?;
    Ok(ConnectedClient {
        client,
        server,
        by_plugin,
    })
}

/// Returns the library's client, with the authentication header of each request added to `secrets`. The
/// library would add that header inside all layers, where it cannot be observed, so a layer on the outside
/// adds it.
fn learning_client(mut config: kube::Config, secrets: &Secrets) -> kube::Result<kube::Client> {
    // `auth_layer` returns `None` if there are no credentials, or only a client certificate. Then there is no
    // header to add.
    let Some(proof) = config.auth_layer()? else {
        return transport::client(config);
    };
    let of_certificate = std::mem::take(&mut config.auth_info);
    config.auth_info = AuthInfo {
        username: None,
        password: None,
        token: None,
        token_file: None,
        auth_provider: None,
        exec: None,
        ..of_certificate
    };
    let client = transport::client(config)?;
    let namespace = client.default_namespace().to_owned();
    let secrets = secrets.clone();
    let last: Arc<Mutex<Option<HeaderValue>>> = Arc::default();
    let inner = tower::service_fn(move |request: http::Request<Body>| {
        let proof = request.headers().get(header::AUTHORIZATION);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != proof {
            *last = proof.cloned();
            proof.into_iter().for_each(|proof| learn_proof(proof, &secrets));
        }
        let client = client.clone();
        async move { client.send(request).await.map_err(tower::BoxError::from) }
    });
    Ok(ClientBuilder::new(inner, namespace).with_layer(&proof).build())
}

/// Returns a client whose requests carry a cloud's token.
fn cloud_client(config: kube::Config, token: ClusterToken, secrets: &Secrets) -> kube::Result<kube::Client> {
    let client = transport::client(config)?;
    let namespace = client.default_namespace().to_owned();
    let secrets = secrets.clone();
    let token = Arc::new(token);
    let inner = tower::service_fn(move |mut request: http::Request<Body>| {
        let (client, token, secrets) = (client.clone(), Arc::clone(&token), secrets.clone());
        async move {
            let bearer = token.bearer(|bearer| secrets.learn(bearer)).await?;
            let mut proof = HeaderValue::try_from(format!("Bearer {bearer}"))?;
            proof.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, proof);
            client.send(request).await.map_err(tower::BoxError::from)
        }
    });
    Ok(ClientBuilder::new(inner, namespace).build())
}

/// Adds the credential in a header to the secrets: `Bearer TOKEN`, or `Basic` with user and password in
/// base64.
fn learn_proof(proof: &HeaderValue, secrets: &Secrets) {
    let Some((scheme, value)) = proof.to_str().ok().and_then(|text| text.split_once(' ')) else {
        return;
    };
    secrets.learn(value);
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(pair) = base64::engine::general_purpose::STANDARD.decode(value)
        && let Some((_, password)) = String::from_utf8_lossy(&pair).split_once(':')
    {
        secrets.learn(password);
    }
}

/// Adds the secrets of a kubeconfig's user: tokens, the password, the environment of a plugin.
fn learn(user: &AuthInfo, secrets: &Secrets) {
    let own = [&user.token, &user.password, &user.client_key_data];
    own.into_iter()
        .flatten()
        .for_each(|secret| secrets.learn(secret.expose_secret()));
    let of_file = user
        .token_file
        .as_ref()
        .and_then(|file| std::fs::read_to_string(file).ok());
    of_file.iter().for_each(|token| secrets.learn(token.trim()));
    for variable in user.exec.iter().flat_map(|exec| exec.env.iter().flatten()) {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value"))
            && is_secret_name(name)
        {
            secrets.learn(value);
        }
    }
    let provider = user.auth_provider.iter().flat_map(|provider| &provider.config);
    for (_, value) in provider.filter(|(name, _)| is_secret_name(name)) {
        secrets.learn(value);
    }
}

/// Describes why credentials could not be obtained. The library's message contains the environment and the
/// output of a plugin, either of which may be secret. Only its exit status and its standard error are shown,
/// without anything that looks like a secret.
pub(crate) fn explain(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let words = without_secrets(&String::from_utf8_lossy(&out.stderr));
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
        AuthError::AuthExecParse(_) => {
            "the output of the credentials plugin is not an `ExecCredential`".to_owned()
        }
        other => chain(other),
    }
}

/// Returns the error for a kubeconfig in the checkout, where a branch could have put it. The path is not
/// shown if it comes from a variable.
fn untrusted(error: Untrusted, variable: Option<&str>) -> UserError {
    match variable {
        Some(variable) if error.what() == Some(kubeconfig::ITSELF) => UserError::new(
            ErrorKind::Config,
            format!("the file that the variable {variable} names lies in the repository, or below /proc"),
        )
        .hint(format!(
            "set {variable} to the absolute path of a kubeconfig outside the checkout"
        )),
        _ => error.into(),
    }
}

/// Describes why a kubeconfig is unusable. The library's message is not used, because it quotes the path and
/// parts of the file.
fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => format!("it cannot be read: {error}"),
        KubeconfigError::Parse(_) => "it is not a kubeconfig".to_owned(),
        other => chain(other),
    }
}

/// The connection settings of a cluster, and the login there.
struct LoadedConfig {
    config: kube::Config,
    login: Option<ClusterLogin>,
    by_plugin: bool,
}

async fn load(trusted: TrustedKubeconfig, context: Option<String>) -> Result<LoadedConfig, ReadError> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    Ok(LoadedConfig {
        config: kube::Config::from_custom_kubeconfig(trusted.file, &options).await?,
        login: trusted.login,
        by_plugin: trusted.has_plugin,
    })
}

/// Returns the error for a refused or invalid kubeconfig. A path from a variable is not shown, because the user may
/// have named a variable with a secret.
fn refused(error: ReadError, credentials: &ClusterCredentials) -> UserError {
    let (mut named, mut place) = (None, "the kubeconfig in KONVERGE_KUBECONFIG".to_owned());
    let mut hint = "the input `kubeconfig` holds the text of a kubeconfig, not its path".to_owned();
    if let ClusterCredentials::Kubeconfig { path, variable, .. } = credentials {
        named = variable.as_deref();
        place = match (variable, path) {
            (Some(variable), _) => format!("the file that the variable {variable} names"),
            (None, Some(path)) => format!("`{}`", path.display()),
            (None, None) => kubeconfig::default_place(),
        };
        hint = match variable {
            Some(variable) => {
                format!("{variable} holds the path of a kubeconfig: not its text, and no other secret")
            }
            None => "`kubectl config get-contexts` lists the contexts of a kubeconfig".to_owned(),
        };
    }
    let why = match error {
        ReadError::Untrusted(error) => return untrusted(error, named),
        ReadError::Foreign(error) => {
            return UserError::new(ErrorKind::Config, error.to_string()).hint(error.remedy());
        }
        ReadError::NoContext(why) => {
            hint = "name a context of the kubeconfig: `clusters.NAME.context` in konverge.yaml, or `--context` beside `--kubeconfig`".to_owned();
            why
        }
        ReadError::Kubeconfig(error) => unusable(&error),
    };
    UserError::new(ErrorKind::Config, format!("{place} cannot be used: {why}")).hint(hint)
}

async fn config(access: &ClusterAccess, options: &Options) -> Result<LoadedConfig, UserError> {
    let (name, checkout) = (&access.name, &options.checkout);
    let login = LoginOptions {
        environment: &options.environment,
        identity: options.identity.as_deref(),
    };
    let (trusted, context) = match &access.credentials {
        ClusterCredentials::InCluster => {
            let config = kube::Config::incluster().map_err(|error| {
                let what = format!(
                    "cluster `{name}` is `in_cluster`, but this is not a pod with a service account: {}",
                    chain(&error)
                );
                UserError::new(ErrorKind::Config, what)
                    .hint("outside the cluster, give it a kubeconfig: set `kubeconfig_env` under `clusters`")
            })?;
            return Ok(LoadedConfig {
                config,
                login: None,
                by_plugin: false,
            });
        }
        ClusterCredentials::Text { text, context } => {
            let trusted = kubeconfig::parse(&text.0, context.as_deref(), checkout, login);
            (trusted, context)
        }
        ClusterCredentials::Kubeconfig { path, context, .. } => {
            let trusted = kubeconfig::read(path.as_deref(), context.as_deref(), checkout, login);
            (trusted, context)
        }
    };
    let loaded = match trusted {
        Ok(trusted) => load(trusted, context.clone()).await,
        Err(error) => Err(error),
    };
    loaded.map_err(|error| refused(error, &access.credentials).context(format!("cluster `{name}`")))
}
