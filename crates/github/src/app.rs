//! The login as a GitHub App: signs a request with the App's private key, and gets a token for the repository,
//! valid for an hour.

use std::sync::Arc;

use async_trait::async_trait;
use konverge_base::variables::{KONVERGE_GITHUB_APP_ID as APP_ID, KONVERGE_GITHUB_APP_KEY as APP_KEY};
use konverge_forge::{ForgeError, ForgeKind, RequestOptions, Result};
use konverge_rest::{Answer, ApiAddress, Exchange, RestApi, RestClient, TokenPermission};
use konverge_secrets::Secrets;
use octocrab::{
    AuthState, Octocrab,
    auth::AppAuth,
    models::{AppId, InstallationId},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    response,
    transport::{self, unanswered},
};

const METADATA: TokenPermission = TokenPermission("metadata: read");

/// A GitHub App that is installed on the repository.
pub(super) struct App {
    id: u64,
    repository: String,
    api: Arc<AppApi>,
    /// The client with the installation's token. It requests the next token before the present one expires.
    installation: OnceCell<Octocrab>,
    secrets: Secrets,
}

/// Sends requests as the App itself, not as its installation.
struct AppApi {
    octocrab: Octocrab,
    address: ApiAddress,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

impl App {
    /// Creates an App from its id and its private key (PEM).
    ///
    /// # Errors
    /// The text is not a private key.
    pub(super) fn new(
        (id, key): (u64, &str),
        repository: &str,
        http: reqwest::Client,
        address: ApiAddress,
        secrets: Secrets,
    ) -> Result<Self> {
        secrets.learn(key);
        // Some secret stores keep a key on one line, with `\n` in place of line breaks.
        let pem = key.replace("\\n", "\n");
        let key =
            jsonwebtoken::EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(|_| ForgeError::Runner {
                message: format!("{APP_KEY} is not a private key"),
                hint: "set the variable to the App's whole private key file, from `-----BEGIN RSA PRIVATE KEY-----` on"
                    .to_owned(),
            })?;
        let auth = AuthState::App(AppAuth {
            app_id: AppId(id),
            key,
        });
        Ok(Self {
            id,
            repository: repository.to_owned(),
            api: Arc::new(AppApi {
                octocrab: transport::octocrab(http, address.clone(), auth),
                address,
            }),
            installation: OnceCell::new(),
            secrets,
        })
    }

    /// Returns the client with a valid token of the installation. Each new token is masked from then on.
    pub(super) async fn installed(&self) -> Result<&Octocrab> {
        let installation = self.installation.get_or_try_init(|| self.find()).await?;
        // The client renews its token by itself, so the present token is masked at each use.
        self.secrets
            .learn(self.token_of(installation).await?.expose_secret());
        Ok(installation)
    }

    /// Returns a valid token, for git.
    pub(super) async fn token(&self) -> Result<SecretString> {
        self.token_of(self.installed().await?).await
    }

    async fn token_of(&self, installation: &Octocrab) -> Result<SecretString> {
        let token = installation.installation_token().await;
        token.map_err(|error| self.no_token(error))
    }

    /// Finds the installation. Its tokens are limited to this repository, even if the App is installed on others.
    async fn find(&self) -> Result<Octocrab> {
        let api: Arc<dyn RestApi> = self.api.clone();
        let path = format!("/repos/{}/installation", self.repository);
        // The login already has retries, so this request has none.
        let client = RestClient::new(api, self.secrets.clone()).with_options(RequestOptions::once());
        let found = client.get::<Installation>(&path, METADATA).await;
        let found = found.map_err(|error| match error {
            ForgeError::Token { .. } => self.refused("401, the App does not exist or has another key"),
            ForgeError::NotFound { .. } => self.refused("404, the App is not installed there"),
            error => error,
        })?;
        let name = self.repository.rsplit('/').next().unwrap_or_default();
        let octocrab = &self.api.octocrab;
        let installation = octocrab
            .installation_builder(InstallationId(found.id))
            .repositories(vec![name.to_owned()]);
        installation
            .build()
            .map_err(|error| unanswered(format!("GET {path}"), error))
    }

    /// Converts the error of a token request. Server errors and rate limits stay as they are; any other error means
    /// that GitHub rejects the App.
    fn no_token(&self, error: octocrab::Error) -> ForgeError {
        let operation = "POST /app/installations/…/access_tokens";
        let octocrab::Error::GitHub { source, .. } = error else {
            return unanswered(operation.to_owned(), error);
        };
        let answer = Answer {
            status: source.status_code,
            headers: source.headers.clone().unwrap_or_default(),
            body: json!({"message": source.message}).to_string(),
        };
        match response::error_of(operation, &answer, METADATA) {
            error @ (ForgeError::Server { .. } | ForgeError::Limited { .. }) => error,
            _ => {
                let said: String = self.secrets.mask(&source.message).chars().take(500).collect();
                self.refused(&format!("{}, {said}", source.status_code.as_u16()))
            }
        }
    }

    fn refused(&self, why: &str) -> ForgeError {
        ForgeError::Runner {
            message: format!(
                "GitHub gives App {} no token for {}: {why}",
                self.id, self.repository
            ),
            hint: format!(
                "check that {APP_ID} and {APP_KEY} belong to the same App, that the App is installed on the repository, and that the clock of this machine is right"
            ),
        }
    }
}

#[async_trait]
impl RestApi for AppApi {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Github
    }

    fn base_path(&self) -> &str {
        &self.address.base_path
    }

    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer> {
        transport::send(&self.octocrab, exchange).await
    }

    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
        response::error_of(operation, answer, need)
    }
}
