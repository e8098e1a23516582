//! The API client of a repository. octocrab sends the requests, but its own retries are not used, because they would
//! repeat a POST; `konverge_rest` decides about retries. Responses are parsed into small structs of our own, so
//! that new fields and values of GitHub cause no errors.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use konverge_forge::{ForgeError, ForgeKind, RequestOptions, Result};
use konverge_rest::{
    Answer, ApiAddress, Exchange, RestApi, RestClient, TokenPermission, check_token, http_client,
};
use konverge_secrets::Secrets;
use octocrab::{AuthState, Octocrab};
use secrecy::SecretString;
use tokio::sync::OnceCell;

use crate::{
    app::App,
    environment::{self, Login},
    response, transport,
};

/// The number of items per page, GitHub's maximum.
pub(super) const PAGE: usize = 100;

/// The version of the API. GitHub Enterprise Server supports no later one.
const API_VERSION: &str = "2022-11-28";

/// The hint for an invalid address or token: where each comes from.
const HINT: &str = "GITHUB_API_URL is set by the runner; GITHUB_TOKEN by the step's `env:`";

/// The API of a GitHub repository, with a token. Cheap to clone; clones share the request counter and the cached
/// responses.
#[derive(Clone)]
pub struct Client {
    pub(super) rest: RestClient,
    repository: String,
    /// The web address of the server, for URLs of runs.
    server_url: String,
    api: Arc<GithubApi>,
    /// The login of the token's owner, once it is known.
    pub(super) login: Arc<OnceCell<String>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("repository", &self.repository)
            .finish_non_exhaustive()
    }
}

/// GitHub's REST API, with the login.
struct GithubApi {
    address: ApiAddress,
    login: ApiLogin,
}

enum ApiLogin {
    Token(Octocrab, SecretString),
    App(Box<App>),
}

impl Client {
    /// Creates a client for `owner/name` at the base address of an API (`https://api.github.com`,
    /// `https://HOST/api/v3`). Adds the token or the key to `secrets`, so that it is masked everywhere. Needs a
    /// Tokio runtime.
    ///
    /// # Errors
    /// An invalid address, token or key.
    pub fn new(api_url: &str, repository: &str, login: Login<'_>, secrets: Secrets) -> Result<Self> {
        let address = ApiAddress::parse(api_url, HINT)?;
        let headers = [
            (
                header::ACCEPT,
                HeaderValue::from_static("application/vnd.github+json"),
            ),
            (
                HeaderName::from_static("x-github-api-version"),
                HeaderValue::from_static(API_VERSION),
            ),
        ];
        let http = http_client(HeaderMap::from_iter(headers))?;
        let login = match login {
            Login::Token(token) => {
                secrets.learn(token);
                check_token(token, HINT)?;
                let token = SecretString::from(token);
                let auth = AuthState::AccessToken { token: token.clone() };
                ApiLogin::Token(transport::octocrab(http, address.clone(), auth), token)
            }
            Login::App { id, key } => ApiLogin::App(Box::new(App::new(
                (id, key),
                repository,
                http,
                address.clone(),
                secrets.clone(),
            )?)),
        };
        let api = Arc::new(GithubApi { address, login });
        Ok(Self {
            rest: RestClient::new(api.clone(), secrets),
            api,
            repository: repository.to_owned(),
            server_url: environment::SERVER_URL.to_owned(),
            login: Arc::default(),
        })
    }

    /// Sets how the requests are sent.
    #[must_use]
    pub fn with_options(mut self, options: RequestOptions) -> Self {
        self.rest = self.rest.with_options(options);
        self
    }

    /// Sets the web address of the server, if it is not github.com.
    #[must_use]
    pub fn with_server_url(mut self, server_url: &str) -> Self {
        server_url.clone_into(&mut self.server_url);
        self
    }

    /// Returns the web address of the server.
    pub(super) fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Returns the number of requests so far, including retries.
    pub fn requests(&self) -> usize {
        self.rest.requests()
    }

    /// Returns a valid token, for git.
    ///
    /// # Errors
    /// GitHub gives the App no token.
    pub async fn token(&self) -> Result<SecretString> {
        match &self.api.login {
            ApiLogin::Token(_, token) => Ok(token.clone()),
            ApiLogin::App(app) => app.token().await,
        }
    }

    /// Returns the path `/repos/owner/name`, followed by `rest`.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}{rest}", self.repository)
    }

    /// Returns the owner of the repository.
    pub(super) fn owner(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }
}

#[async_trait]
impl RestApi for GithubApi {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Github
    }

    fn base_path(&self) -> &str {
        &self.address.base_path
    }

    async fn log_in(&self) -> Result<()> {
        match &self.login {
            ApiLogin::Token(..) => Ok(()),
            ApiLogin::App(app) => app.installed().await.map(drop),
        }
    }

    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer> {
        let octocrab = match &self.login {
            ApiLogin::Token(octocrab, _) => octocrab,
            ApiLogin::App(app) => app.installed().await?,
        };
        transport::send(octocrab, exchange).await
    }

    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
        response::error_of(operation, answer, need)
    }
}
