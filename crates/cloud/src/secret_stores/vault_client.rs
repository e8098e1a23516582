//! Requests to a Vault: the ways to log in that need no key in a file, and sessions by rights.
//!
//! <https://developer.hashicorp.com/vault/api-docs>

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, time::Instant};
use zeroize::Zeroizing;

use super::{
    SecretProblem, SecretRights, cloud_login,
    http::{SecretHttpAnswer, SecretHttpClient, unexpected},
    secret_document::zeroize_json,
};
use crate::JobIdentity;
use konverge_secrets::Secrets;

/// A session of less than this is not renewed after a denial: a denial is meant.
const RENEWAL_AFTER: Duration = Duration::from_secs(30);

/// A login that failed is not tried again for this long.
const FAILURE_KEPT: Duration = Duration::from_secs(60);

/// Address of the server, and the login there.
pub struct VaultServer {
    /// Such as `https://vault.example.com`.
    pub address: String,
    /// The namespace, for servers that have them.
    pub namespace: Option<String>,
    /// The login of the job.
    pub login: VaultLogin,
}

/// Login of the job. The credentials are those of its environment.
pub enum VaultLogin {
    /// With a token as it is.
    Token(Option<Zeroizing<String>>),
    /// With the token that GitHub gives the job.
    Jwt {
        /// Path of the login method.
        mount: String,
        /// Role to log in as.
        role: String,
        /// The role of previews, which reads versions only.
        preview_role: Option<String>,
        /// The job's identity at GitHub.
        identity: JobIdentity,
    },
    /// With a role's id and secret.
    AppRole {
        /// Path of the login method.
        mount: String,
        /// The role's id.
        role_id: Option<Zeroizing<String>>,
        /// The secret that belongs to the role.
        secret_id: Option<Zeroizing<String>>,
    },
}

/// Sends requests to a Vault.
pub(super) struct VaultClient {
    server: VaultServer,
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    /// By rights.
    sessions: [Mutex<Option<Login>>; 2],
}

/// The last login.
enum Login {
    Open(Session),
    Failed(Instant, SecretProblem),
}

/// A login that succeeded.
#[derive(Clone)]
struct Session {
    token: Zeroizing<String>,
    since: Instant,
    /// Time for which the token is valid; `None` if the server does not say.
    lasts: Option<Duration>,
    /// Number of further uses of the token; `None` without a limit.
    uses: Option<u64>,
}

impl VaultClient {
    /// `secrets` learns the tokens of logins.
    pub(super) fn new(server: VaultServer, secrets: Secrets) -> Self {
        Self {
            server,
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            sessions: Default::default(),
        }
    }

    /// `data` of the answer to a GET.
    pub(super) async fn get(
        &self,
        path: &str,
        rights: SecretRights,
    ) -> Result<Map<String, Value>, SecretProblem> {
        self.request(path, rights, |client, url| client.get(url)).await
    }

    /// Returns true if previews log in with a role of their own.
    pub(super) fn has_preview_role(&self) -> bool {
        let login = &self.server.login;
        matches!(
            login,
            VaultLogin::Jwt {
                preview_role: Some(_),
                ..
            }
        )
    }

    /// `data` of the answer to a POST of JSON that may be repeated.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        rights: SecretRights,
    ) -> Result<Map<String, Value>, SecretProblem> {
        self.request(path, rights, |client, url| client.post(url).json(body))
            .await
    }

    /// Sends a request. An older session that the server does not know any more is renewed once.
    async fn request(
        &self,
        path: &str,
        rights: SecretRights,
        make: impl Fn(&Client, String) -> RequestBuilder,
    ) -> Result<Map<String, Value>, SecretProblem> {
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let request = |client: &Client, token: &str| {
            let request = make(client, self.url(path)).header("X-Vault-Token", token);
            self.with_namespace(request)
        };
        let session = self.session(http, rights, None).await?;
        let mut answer = http.send(|client| request(client, &session.token)).await?;
        let may_have_ended =
            answer.status == StatusCode::FORBIDDEN && session.since.elapsed() > RENEWAL_AFTER;
        if may_have_ended && !matches!(self.server.login, VaultLogin::Token(_)) {
            let renewed = self.session(http, rights, Some(session.since)).await?;
            answer = http.send(|client| request(client, &renewed.token)).await?;
        }
        data_of(http, &answer)
    }

    fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.server.address.trim_end_matches('/'))
    }

    fn with_namespace(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("X-Vault-Request", "true");
        match &self.server.namespace {
            Some(namespace) => request.header("X-Vault-Namespace", namespace),
            None => request,
        }
    }

    /// The session for these rights; a new one if the last one began at `ended`.
    async fn session(
        &self,
        http: &SecretHttpClient,
        rights: SecretRights,
        ended: Option<Instant>,
    ) -> Result<Session, SecretProblem> {
        let mut login = self.sessions[rights as usize].lock().await;
        match login.as_mut() {
            Some(Login::Open(session)) => {
                if Some(session.since) != ended && session.take_use() {
                    return Ok(session.clone());
                }
            }
            Some(Login::Failed(at, problem)) if at.elapsed() < FAILURE_KEPT => return Err(problem.clone()),
            Some(Login::Failed(..)) | None => {}
        }
        match self.log_in(http, rights).await {
            Ok(mut session) => {
                session.take_use();
                *login = Some(Login::Open(session.clone()));
                Ok(session)
            }
            Err(problem) => {
                *login = Some(Login::Failed(Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }

    async fn log_in(&self, http: &SecretHttpClient, rights: SecretRights) -> Result<Session, SecretProblem> {
        let missing = |what: &str| SecretProblem::NoCredentials(what.into());
        let (mount, mut body) = match &self.server.login {
            VaultLogin::Token(token) => {
                let token = token.clone();
                return Ok(Session {
                    token: token.ok_or_else(|| missing("VAULT_TOKEN is not set in this job"))?,
                    since: Instant::now(),
                    lasts: None,
                    uses: None,
                });
            }
            VaultLogin::Jwt {
                mount,
                role,
                preview_role,
                identity,
            } => {
                let jwt = cloud_login::with_retries(|| identity.token()).await?;
                let jwt = jwt.ok_or_else(|| {
                    missing("this job gets no OIDC token; it needs `permissions: {id-token: write}`")
                })?;
                self.secrets.learn(&jwt);
                let role = match (rights, preview_role) {
                    (SecretRights::Versions, Some(preview_role)) => preview_role,
                    _ => role,
                };
                (mount, json!({"role": role, "jwt": jwt.as_str()}))
            }
            VaultLogin::AppRole {
                mount,
                role_id,
                secret_id,
            } => {
                let (Some(role_id), Some(secret_id)) = (role_id, secret_id) else {
                    return Err(missing("VAULT_ROLE_ID or VAULT_SECRET_ID is not set in this job"));
                };
                (
                    mount,
                    json!({"role_id": role_id.as_str(), "secret_id": secret_id.as_str()}),
                )
            }
        };
        let path = format!("auth/{}/login", mount.trim_matches('/'));
        let answer = http.send(|client| self.with_namespace(client.post(self.url(&path))).json(&body));
        let answer = answer.await;
        zeroize_json(&mut body);
        let answer = answer?;
        if !answer.status.is_success() {
            // A wrong role is answered with 400.
            let why = http.words(&answer, errors);
            return Err(SecretProblem::Login {
                status: Some(answer.status.as_u16()),
                why: format!("the login at `{path}` failed: {why}").into(),
            });
        }
        let mut answer: Value =
            serde_json::from_slice(&answer.body).map_err(|_| unexpected("the login has no JSON answer"))?;
        let token = match answer.pointer_mut("/auth/client_token") {
            Some(Value::String(token)) => Zeroizing::new(std::mem::take(token)),
            _ => return Err(unexpected("the login has no token in its answer")),
        };
        let number = |key: &str| {
            let number = answer["auth"][key].as_u64();
            number.filter(|number| *number > 0)
        };
        let (lasts, uses) = (number("lease_duration"), number("num_uses"));
        zeroize_json(&mut answer);
        self.secrets.learn(&token);
        Ok(Session {
            token,
            since: Instant::now(),
            lasts: lasts.map(Duration::from_secs),
            uses,
        })
    }
}

impl Session {
    /// Counts one use. Returns false if the token has ended.
    fn take_use(&mut self) -> bool {
        if self.lasts.is_some_and(|lasts| self.since.elapsed() >= lasts) || self.uses == Some(0) {
            return false;
        }
        self.uses = self.uses.map(|uses| uses - 1);
        true
    }
}

/// `data` of an answer.
fn data_of(http: &SecretHttpClient, answer: &SecretHttpAnswer) -> Result<Map<String, Value>, SecretProblem> {
    if !answer.status.is_success() {
        return Err(http.problem(answer, errors));
    }
    let mut body: Value =
        serde_json::from_slice(&answer.body).map_err(|_| unexpected("the answer is not JSON"))?;
    match body.get_mut("data").map(Value::take) {
        Some(Value::Object(data)) => Ok(data),
        _ => Err(unexpected("the answer has no `data`")),
    }
}

fn errors(body: &Value) -> Option<String> {
    let errors = body["errors"].as_array()?;
    let errors: Vec<_> = errors.iter().filter_map(Value::as_str).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}
