//! Requests to a Vault. The login methods need no key in a file. Previews and applies have separate sessions.
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

/// After a denial, only a session older than this is renewed: the token of a newer one cannot have expired, so
/// the denial is final.
const RENEWAL_AFTER: Duration = Duration::from_secs(30);

/// Time for which a failed login is not repeated.
const FAILURE_KEPT: Duration = Duration::from_secs(60);

/// The address of the server, and the login there.
pub struct VaultServer {
    /// The address, such as `https://vault.example.com`.
    pub address: String,
    /// The namespace, for servers with namespaces.
    pub namespace: Option<String>,
    /// The login of the job.
    pub login: VaultLogin,
}

/// The login method of the job. Its credentials come from the environment.
pub enum VaultLogin {
    /// A token, used as it is.
    Token(Option<Zeroizing<String>>),
    /// The OIDC token that GitHub gives the job.
    Jwt {
        /// The path of the login method.
        mount: String,
        /// The role to log in as.
        role: String,
        /// The role of previews, which reads versions only.
        preview_role: Option<String>,
        /// The job's identity at GitHub.
        identity: JobIdentity,
    },
    /// A role's id and secret.
    AppRole {
        /// The path of the login method.
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
    /// The last login for each of the [`SecretRights`].
    sessions: [Mutex<Option<Login>>; 2],
}

/// The result of the last login.
enum Login {
    Open(Session),
    Failed(Instant, SecretProblem),
}

/// A login that succeeded.
#[derive(Clone)]
struct Session {
    token: Zeroizing<String>,
    since: Instant,
    /// Lifetime of the token; `None` if the server does not state it.
    lasts: Option<Duration>,
    /// Number of remaining uses of the token; `None` without a limit.
    uses: Option<u64>,
}

impl VaultClient {
    /// Creates a client. The tokens of its logins are added to `secrets`, which masks them.
    pub(super) fn new(server: VaultServer, secrets: Secrets) -> Self {
        Self {
            server,
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            sessions: Default::default(),
        }
    }

    /// Sends a GET and returns `data` of the response.
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

    /// Posts JSON and returns `data` of the response. The request must be safe to repeat.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        rights: SecretRights,
    ) -> Result<Map<String, Value>, SecretProblem> {
        self.request(path, rights, |client, url| client.post(url).json(body))
            .await
    }

    /// Sends a request. After a denial, an older session is renewed once.
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

    /// Returns the session for these rights, or logs in again if the cached session is the one that began at
    /// `ended`.
    async fn session(
        &self,
        http: &SecretHttpClient,
        rights: SecretRights,
        ended: Option<Instant>,
    ) -> Result<Session, SecretProblem> {
        // The lock is held during a login, so that concurrent requests log in only once.
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
                // The token is masked from here on, before it is sent, because an error of the server may quote it.
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
        // The body contains credentials, so it is overwritten even if the request failed.
        zeroize_json(&mut body);
        let answer = answer?;
        if !answer.status.is_success() {
            // Vault reports an unknown role with status 400, too.
            let why = http.words(&answer, errors);
            return Err(SecretProblem::Login {
                status: Some(answer.status.as_u16()),
                why: format!("the login at `{path}` failed: {why}").into(),
            });
        }
        let mut answer: Value = serde_json::from_slice(&answer.body)
            .map_err(|_| unexpected("the answer to the login is not JSON"))?;
        let token = match answer.pointer_mut("/auth/client_token") {
            Some(Value::String(token)) => Zeroizing::new(std::mem::take(token)),
            _ => return Err(unexpected("the login has no token in its answer")),
        };
        let number = |key: &str| {
            let number = answer["auth"][key].as_u64();
            // Vault writes 0 for a token that does not expire, or has no limit of uses.
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
    /// Counts one use. Returns false if the token has expired or has no use left.
    fn take_use(&mut self) -> bool {
        if self.lasts.is_some_and(|lasts| self.since.elapsed() >= lasts) || self.uses == Some(0) {
            return false;
        }
        self.uses = self.uses.map(|uses| uses - 1);
        true
    }
}

/// Returns `data` of a response.
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
