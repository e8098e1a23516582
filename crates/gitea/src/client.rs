//! The API client of a repository. `konverge_rest` decides about retries.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use http::header;
use konverge_forge::{ForgeError, ForgeKind, RequestOptions, Result};
use konverge_rest::{ApiAddress, HttpApi, RestClient, TokenPermission, check_token};
use konverge_secrets::Secrets;
use secrecy::SecretString;
use tokio::sync::OnceCell;

use crate::{answers, version::Server};

/// The hint for an invalid address or token: where each comes from.
const HINT: &str = "GITHUB_API_URL is set by the runner; GITEA_TOKEN by the step's `env:`";

/// The API of a Gitea repository, with a token. Cheap to clone; clones share the cached facts.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) rest: RestClient,
    repository: String,
    /// The web address of the server, for URLs of runs.
    server_url: String,
    token: SecretString,
    pub(super) learned: Arc<Learned>,
}

/// Facts that are requested once and then cached.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The login of the token's owner.
    pub(super) login: OnceCell<String>,
    /// The number of items on a page.
    pub(super) page: OnceCell<usize>,
    /// The server and its version.
    pub(super) server: OnceCell<Server>,
    /// The ids of labels that were found.
    pub(super) labels: Mutex<BTreeMap<String, u64>>,
}

impl Client {
    /// Creates a client for `owner/name` at the base address of an API (`https://HOST/api/v1`). Adds the token to
    /// `secrets`, so that it is masked everywhere.
    ///
    /// # Errors
    /// An invalid address or token.
    pub fn new(api_url: &str, repository: &str, token: &str, secrets: Secrets) -> Result<Self> {
        secrets.learn(token);
        let address = ApiAddress::parse(api_url, HINT)?;
        check_token(token, HINT)?;
        let api = HttpApi::new(
            ForgeKind::Gitea,
            address,
            (header::AUTHORIZATION, &format!("token {token}")),
            answers::error_of,
        )?;
        let server_url = api.server_url("/api/v1");
        Ok(Self {
            rest: RestClient::new(Arc::new(api), secrets),
            repository: repository.to_owned(),
            server_url,
            token: token.to_owned().into(),
            learned: Arc::default(),
        })
    }

    /// Sets how the requests are sent.
    #[must_use]
    pub fn with_options(mut self, options: RequestOptions) -> Self {
        self.rest = self.rest.with_options(options);
        self
    }

    /// Sets the web address of the server, if it differs from the API's.
    #[must_use]
    pub fn with_server_url(mut self, server_url: &str) -> Self {
        server_url.trim_end_matches('/').clone_into(&mut self.server_url);
        self
    }

    /// Returns the token, for git.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// Returns the web address of the server.
    pub(super) fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Returns the name and version of the server. Requested once.
    pub(super) async fn server(&self) -> Result<&Server> {
        #[derive(serde::Deserialize)]
        struct Answer {
            version: String,
        }
        let asked = || async {
            let Answer { version } = self.rest.get("/version", TokenPermission("read:misc")).await?;
            Ok::<_, ForgeError>(Server::parse(&version))
        };
        self.learned.server.get_or_try_init(asked).await
    }

    /// Returns the path `/repos/owner/name`, followed by `rest`.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}{rest}", self.repository)
    }
}
