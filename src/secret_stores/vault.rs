//! HashiCorp Vault and OpenBao: the KV engine in both versions, and the ways to log in that need no key in a file.
//!
//! <https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2>

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, time::Instant};
use zeroize::Zeroizing;

use super::{
    FetchedSecret, SecretDocument, SecretProblem, SecretQuery, SecretRights, SecretStore, SecretStoreError,
    document::zeroize_json,
    http::{SecretHttpAnswer, SecretHttpClient, unavailable},
};
use crate::secrets::Secrets;

/// A session of less than this is not renewed: a denial is meant.
const RENEWAL_AFTER: Duration = Duration::from_secs(30);

/// Where the engine is, and how to log in.
pub struct VaultSettings {
    /// Such as `https://vault.example.com`.
    pub address: String,
    /// The namespace, for servers that have them.
    pub namespace: Option<String>,
    /// The mount of the engine. `None`: the first component of a path.
    pub mount: Option<String>,
    /// The version of the KV engine.
    pub engine: KvVersion,
    pub login: VaultLogin,
}

/// The version of the KV engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvVersion {
    /// Without versions of secrets.
    One,
    Two,
}

/// How the job logs in. The credentials are those of its environment.
pub enum VaultLogin {
    /// With a token as it is.
    Token(Option<Zeroizing<String>>),
    /// With the token that GitHub gives the job.
    Jwt {
        mount: String,
        role: String,
        /// The role of previews, which reads versions only.
        preview_role: Option<String>,
        identity: Option<JobIdentity>,
    },
    /// With a role's id and secret.
    AppRole {
        mount: String,
        role_id: Option<Zeroizing<String>>,
        secret_id: Option<Zeroizing<String>>,
    },
}

/// Where a job of GitHub Actions gets its OIDC token.
pub struct JobIdentity {
    pub url: String,
    pub token: Zeroizing<String>,
    pub audience: Option<String>,
}

/// A Vault.
pub struct VaultStore {
    name: String,
    settings: VaultSettings,
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    /// By rights.
    sessions: [Mutex<Option<Session>>; 2],
}

/// A login.
#[derive(Clone)]
struct Session {
    token: Zeroizing<String>,
    since: Instant,
}

impl VaultStore {
    /// `secrets` learns the tokens of logins.
    pub fn new(name: String, settings: VaultSettings, secrets: Secrets) -> Self {
        Self {
            name,
            settings,
            secrets,
            http: SecretHttpClient::new(),
            sessions: Default::default(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.settings.address.trim_end_matches('/'))
    }

    /// The mount of the engine, and the path below it.
    fn place<'q>(&'q self, path: &'q str) -> Result<(&'q str, &'q str), SecretProblem> {
        let path = path.trim_start_matches('/');
        match &self.settings.mount {
            Some(mount) => Ok((mount.trim_matches('/'), path)),
            None => path.split_once('/').ok_or_else(|| {
                unavailable(
                    "the path has no mount of a KV engine; set `mount`, or write it first in the path",
                )
            }),
        }
    }

    fn request(&self, client: &Client, path: &str, token: &str) -> RequestBuilder {
        let request = client.get(self.url(path)).header("X-Vault-Token", token);
        self.with_namespace(request)
    }

    fn with_namespace(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("X-Vault-Request", "true");
        match &self.settings.namespace {
            Some(namespace) => request.header("X-Vault-Namespace", namespace),
            None => request,
        }
    }

    /// Reads a path. An older session that the server does not know any more is renewed once.
    async fn get(&self, path: &str, rights: SecretRights) -> Result<Map<String, Value>, SecretProblem> {
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let session = self.session(http, rights, None).await?;
        let mut answer = http
            .send(|client| self.request(client, path, &session.token))
            .await?;
        let may_have_ended =
            answer.status == StatusCode::FORBIDDEN && session.since.elapsed() > RENEWAL_AFTER;
        if may_have_ended && !matches!(self.settings.login, VaultLogin::Token(_)) {
            let renewed = self.session(http, rights, Some(session.since)).await?;
            answer = http
                .send(|client| self.request(client, path, &renewed.token))
                .await?;
        }
        data_of(&answer)
    }

    /// The session for these rights; a new one if the last one began at `ended`.
    async fn session(
        &self,
        http: &SecretHttpClient,
        rights: SecretRights,
        ended: Option<Instant>,
    ) -> Result<Session, SecretProblem> {
        let mut session = self.sessions[rights as usize].lock().await;
        if let Some(known) = session.as_ref().filter(|known| Some(known.since) != ended) {
            return Ok(known.clone());
        }
        let new = Session {
            token: self.log_in(http, rights).await?,
            since: Instant::now(),
        };
        *session = Some(new.clone());
        Ok(new)
    }

    async fn log_in(
        &self,
        http: &SecretHttpClient,
        rights: SecretRights,
    ) -> Result<Zeroizing<String>, SecretProblem> {
        let missing = |what: &str| SecretProblem::NoCredentials(what.to_owned());
        let (mount, body) = match &self.settings.login {
            VaultLogin::Token(token) => {
                return token
                    .clone()
                    .ok_or_else(|| missing("VAULT_TOKEN is not set in this job"));
            }
            VaultLogin::Jwt {
                mount,
                role,
                preview_role,
                identity,
            } => {
                let identity = identity.as_ref().ok_or_else(|| {
                    missing("this job gets no OIDC token; it needs `permissions: {id-token: write}`")
                })?;
                let role = match (rights, preview_role) {
                    (SecretRights::Versions, Some(preview_role)) => preview_role,
                    _ => role,
                };
                let jwt = self.job_token(http, identity).await?;
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
        let mut body = body;
        zeroize_json(&mut body);
        let answer = answer?;
        if !answer.status.is_success() {
            // A wrong role is answered with 400.
            let why = words_of(&answer);
            return Err(SecretProblem::Denied {
                status: Some(answer.status.as_u16()),
                why: format!("the login at `{path}` failed: {why}"),
            });
        }
        let mut answer: Value =
            serde_json::from_slice(&answer.body).map_err(|_| unavailable("the login has no JSON answer"))?;
        let token = match answer.pointer_mut("/auth/client_token") {
            Some(Value::String(token)) => Zeroizing::new(std::mem::take(token)),
            _ => return Err(unavailable("the login has no token in its answer")),
        };
        zeroize_json(&mut answer);
        self.secrets.learn(&token);
        Ok(token)
    }

    async fn job_token(
        &self,
        http: &SecretHttpClient,
        identity: &JobIdentity,
    ) -> Result<Zeroizing<String>, SecretProblem> {
        let no_address =
            |_| SecretProblem::NoCredentials("ACTIONS_ID_TOKEN_REQUEST_URL is not a URL".to_owned());
        let mut url = url::Url::parse(&identity.url).map_err(no_address)?;
        if let Some(audience) = &identity.audience {
            url.query_pairs_mut().append_pair("audience", audience);
        }
        let answer = http.send(|client| client.get(url.clone()).bearer_auth(identity.token.as_str()));
        let answer = answer.await?;
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match body.get_mut("value") {
            Some(Value::String(token)) if answer.status.is_success() => {
                let token = Zeroizing::new(std::mem::take(token));
                self.secrets.learn(&token);
                Ok(token)
            }
            _ => Err(SecretProblem::NoCredentials(format!(
                "GitHub gave this job no OIDC token (HTTP {})",
                answer.status.as_u16()
            ))),
        }
    }

    async fn newest(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretProblem> {
        if self.settings.engine == KvVersion::One {
            return Ok(None);
        }
        let (mount, path) = self.place(&query.path)?;
        let found = self.get(&format!("{mount}/metadata/{path}"), rights).await?;
        let newest = found.get("current_version").and_then(Value::as_u64);
        let newest = newest
            .ok_or_else(|| unavailable("its metadata has no version; is it a KV engine of version 2?"))?;
        let version = query.version.clone().unwrap_or_else(|| newest.to_string());
        let about = found.get("versions").and_then(|versions| versions.get(&version));
        let is_there = about.is_some_and(|about| {
            let is_set = |key: &str| about[key].as_str().is_some_and(|time| !time.is_empty());
            about["destroyed"] != true && !is_set("deletion_time")
        });
        match is_there {
            true => Ok(Some(version)),
            false => Err(SecretProblem::Missing(None)),
        }
    }

    async fn content(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let (mount, path) = self.place(&query.path)?;
        let version = query.version.as_ref();
        let (path, is_two) = match self.settings.engine {
            KvVersion::One => (format!("{mount}/{path}"), false),
            KvVersion::Two => {
                let version = version.map(|version| format!("?version={version}"));
                (
                    format!("{mount}/data/{path}{}", version.unwrap_or_default()),
                    true,
                )
            }
        };
        let mut found = self.get(&path, SecretRights::Values).await?;
        if !is_two {
            return Ok(FetchedSecret {
                document: SecretDocument::from_fields(found),
                version: None,
            });
        }
        let version = found.get("metadata").and_then(|about| about["version"].as_u64());
        match found.get_mut("data").map(Value::take) {
            Some(Value::Object(fields)) => Ok(FetchedSecret {
                document: SecretDocument::from_fields(fields),
                version: version.map(|version| version.to_string()),
            }),
            Some(Value::Null) => Err(SecretProblem::Missing(None)),
            _ => Err(unavailable(
                "the answer has no fields; is it a KV engine of version 2?",
            )),
        }
    }
}

/// `data` of an answer.
fn data_of(answer: &SecretHttpAnswer) -> Result<Map<String, Value>, SecretProblem> {
    if !answer.status.is_success() {
        return Err(answer.problem(|body| Some(errors(body))));
    }
    let mut body: Value =
        serde_json::from_slice(&answer.body).map_err(|_| unavailable("the answer is not JSON"))?;
    match body.get_mut("data").map(Value::take) {
        Some(Value::Object(data)) => Ok(data),
        _ => Err(unavailable("the answer has no `data`")),
    }
}

fn errors(body: &Value) -> String {
    let errors = body["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    errors.collect::<Vec<_>>().join("; ")
}

fn words_of(answer: &SecretHttpAnswer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let words: String = errors(&body).chars().take(200).collect();
    words.escape_debug().to_string()
}

#[async_trait]
impl SecretStore for VaultStore {
    async fn version(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretStoreError> {
        let found = self.newest(query, rights).await;
        found.map_err(|problem| SecretStoreError::new(&self.name, &query.path, problem))
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretStoreError> {
        let found = self.content(query).await;
        found.map_err(|problem| SecretStoreError::new(&self.name, &query.path, problem))
    }
}
