//! Requests to a Vault. The login methods need no key in a file. Previews and applies have separate sessions.
//!
//! <https://developer.hashicorp.com/vault/api-docs>

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, time::Instant};
use zeroize::Zeroizing;

use super::{
    SecretProblem, SecretRights,
    http::{SecretHttpAnswer, SecretHttpClient, unexpected},
    secret_document::zeroize_json,
};
use crate::{JobIdentity, shared_credentials::with_retries};
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
    http: SecretHttpClient,
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
            http: SecretHttpClient::new(secrets),
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
        let request = |client: &Client, token: &str| {
            let request = make(client, self.url(path)).header("X-Vault-Token", token);
            self.with_namespace(request)
        };
        let session = self.session(rights, None).await?;
        let mut answer = self.http.send(|client| request(client, &session.token)).await?;
        let may_have_ended =
            answer.status == StatusCode::FORBIDDEN && session.since.elapsed() > RENEWAL_AFTER;
        if may_have_ended && !matches!(self.server.login, VaultLogin::Token(_)) {
            let renewed = self.session(rights, Some(session.since)).await?;
            answer = self.http.send(|client| request(client, &renewed.token)).await?;
        }
        data_of(&self.http, &answer)
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
    async fn session(&self, rights: SecretRights, ended: Option<Instant>) -> Result<Session, SecretProblem> {
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
        match self.log_in(rights).await {
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

    async fn log_in(&self, rights: SecretRights) -> Result<Session, SecretProblem> {
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
                let jwt = with_retries(|| identity.token()).await?;
                let jwt = jwt.ok_or_else(|| {
                    missing("this job gets no OIDC token; it needs `permissions: {id-token: write}`")
                })?;
                // The token is masked from here on, before it is sent, because an error of the server may quote it.
                self.http.secrets.learn(&jwt);
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
        let send = |client: &Client| self.with_namespace(client.post(self.url(&path))).json(&body);
        let answer = self.http.send(send).await;
        // The body contains credentials, so it is overwritten even if the request failed.
        zeroize_json(&mut body);
        let answer = answer?;
        if !answer.status.is_success() {
            // Vault reports an unknown role with status 400, too.
            let why = self.http.words(&answer, errors);
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
        self.http.secrets.learn(&token);
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
    let mut body = answer.json(|answer| http.problem(answer, errors))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloudEnvironment;
    use konverge_secrets::HashKey;

    fn client(login: VaultLogin) -> VaultClient {
        let server = VaultServer {
            address: "https://vault.invalid/".to_owned(),
            namespace: None,
            login,
        };
        VaultClient::new(server, Secrets::new(HashKey::derive("k")))
    }

    fn jwt(preview_role: Option<&str>) -> VaultLogin {
        VaultLogin::Jwt {
            mount: "jwt".to_owned(),
            role: "apply".to_owned(),
            preview_role: preview_role.map(str::to_owned),
            identity: JobIdentity::new(None, CloudEnvironment::default()),
        }
    }

    fn app_role(role_id: Option<&str>, secret_id: Option<&str>) -> VaultLogin {
        let owned = |text: Option<&str>| text.map(|text| Zeroizing::new(text.to_owned()));
        VaultLogin::AppRole {
            mount: "approle".to_owned(),
            role_id: owned(role_id),
            secret_id: owned(secret_id),
        }
    }

    #[tokio::test]
    async fn a_job_without_credentials_is_told_which_and_sends_nothing() {
        for (login, missing) in [
            (VaultLogin::Token(None), "VAULT_TOKEN is not set in this job"),
            (jwt(None), "this job gets no OIDC token"),
            (app_role(Some("id"), None), "VAULT_ROLE_ID or VAULT_SECRET_ID"),
            (app_role(None, Some("secret")), "VAULT_ROLE_ID or VAULT_SECRET_ID"),
        ] {
            let client = client(login);
            for _ in 0..2 {
                let problem = client
                    .get("secret/data/db", SecretRights::Values)
                    .await
                    .unwrap_err();
                let said = konverge_base::error::chain(&problem);
                assert!(
                    matches!(problem, SecretProblem::NoCredentials(_)) && said.contains(missing),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn only_a_login_by_a_role_has_one_of_previews() {
        assert!(client(jwt(Some("preview"))).has_preview_role());
        assert!(!client(jwt(None)).has_preview_role());
        assert!(!client(VaultLogin::Token(None)).has_preview_role());
        assert!(!client(app_role(None, None)).has_preview_role());
    }

    #[test]
    fn a_token_is_used_within_its_time_and_its_number_of_uses() {
        let session = |age: u64, uses| Session {
            token: Zeroizing::new("hvs.token".to_owned()),
            since: Instant::now().checked_sub(Duration::from_secs(age)).unwrap(),
            lasts: Some(Duration::from_secs(60)),
            uses,
        };
        let mut twice = session(0, Some(2));
        assert_eq!(
            [twice.take_use(), twice.take_use(), twice.take_use()],
            [true, true, false]
        );
        assert!(session(50, None).take_use());
        assert!(!session(60, None).take_use());
        assert!(!session(60, Some(2)).take_use());
        let mut endless = Session {
            lasts: None,
            ..session(600, None)
        };
        assert!(endless.take_use() && endless.take_use());
    }

    #[test]
    fn an_answer_without_data_is_a_problem() {
        let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
        let answer = |status, body: &str| SecretHttpAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            body: Zeroizing::new(body.as_bytes().to_vec()),
        };
        let data = data_of(&http, &answer(200, r#"{"data": {"a": "b"}}"#)).unwrap();
        assert_eq!(Value::Object(data), json!({"a": "b"}));
        for body in ["{}", r#"{"data": null}"#, r#"{"data": []}"#, "s3cret"] {
            assert!(data_of(&http, &answer(200, body)).is_err(), "{body}");
        }
        let denied = SecretProblem::Denied {
            status: Some(403),
            why: "permission denied; on a".into(),
        };
        let body = r#"{"errors": ["permission denied", 7, "on a"]}"#;
        assert_eq!(data_of(&http, &answer(403, body)), Err(denied));
        assert_eq!(errors(&json!({"errors": []})), None);
    }
}
