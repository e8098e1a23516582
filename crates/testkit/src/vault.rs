//! A fake of Vault with the documented API of KV 1 and 2, logins by JWT and AppRole, and policies by path; and of
//! GitHub's endpoint for the OIDC token of a job. <https://developer.hashicorp.com/vault/api-docs>

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::json_answer::Json;

/// The OIDC token that GitHub gives the job. [`REQUEST_TOKEN`] is the token with which the job requests it.
const JOB_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.the-jobs-own.token";
pub const REQUEST_TOKEN: &str = "request-token-of-the-job";

#[derive(Default)]
struct World {
    /// The versions of each secret of `secret/` (KV 2); `None` for a deleted one.
    secrets: BTreeMap<String, Vec<Option<Value>>>,
    /// The secrets of `kv/` (KV 1).
    plain: BTreeMap<String, Value>,
    /// The path prefixes that each role may read.
    roles: HashMap<String, Vec<String>>,
    /// The role of each token, and the number of remaining uses.
    tokens: HashMap<String, (String, Option<u64>)>,
    /// The number of uses of a token from a login; `None` for no limit.
    uses: Option<u64>,
    /// The namespace of everything in the server.
    namespace: String,
    /// The data that the transit engine at `transit/` encrypted: ciphertext to key, plaintext and associated data.
    transit: HashMap<String, (String, Value, Value)>,
    /// True if every request is answered with an error.
    is_away: bool,
    latency: std::time::Duration,
    /// Role and path of every request.
    requests: Vec<(String, String)>,
}

/// A running fake.
#[derive(Clone)]
pub struct FakeVault {
    world: Arc<Mutex<World>>,
    address: String,
}

impl FakeVault {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let world = Arc::new(Mutex::new(World::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&world));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { world, address }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Writes the next version of a secret of `secret/`.
    pub fn put(&self, path: &str, fields: Value) {
        let mut world = self.world.lock().unwrap();
        world
            .secrets
            .entry(path.to_owned())
            .or_default()
            .push(Some(fields));
    }

    /// Deletes the newest version of a secret.
    pub fn delete(&self, path: &str) {
        let mut world = self.world.lock().unwrap();
        *world.secrets.get_mut(path).unwrap().last_mut().unwrap() = None;
    }

    /// Deletes a secret with all its versions: the next one is number 1 again.
    pub fn forget(&self, path: &str) {
        self.world.lock().unwrap().secrets.remove(path);
    }

    /// Writes a secret of `kv/`.
    pub fn put_plain(&self, path: &str, fields: Value) {
        self.world.lock().unwrap().plain.insert(path.to_owned(), fields);
    }

    /// Lets a role read paths that start with one of these prefixes.
    pub fn allow(&self, role: &str, prefixes: &[&str]) {
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        self.world.lock().unwrap().roles.insert(role.to_owned(), prefixes);
    }

    /// Returns a token of a role, as if somebody had created it by hand.
    pub fn token(&self, role: &str) -> String {
        let token = format!("hvs.{}", uuid::Uuid::new_v4().simple());
        let mut world = self.world.lock().unwrap();
        world.tokens.insert(token.clone(), (role.to_owned(), None));
        token
    }

    /// Limits the uses of tokens from logins, from now on.
    pub fn limit_uses(&self, uses: u64) {
        self.world.lock().unwrap().uses = Some(uses);
    }

    /// Moves everything into a namespace. A request without that namespace finds nothing.
    pub fn move_to_namespace(&self, name: &str) {
        self.world.lock().unwrap().namespace = name.to_owned();
    }

    /// Delays each request by this time, from now on.
    pub fn be_slow(&self, latency: std::time::Duration) {
        self.world.lock().unwrap().latency = latency;
    }

    /// Switches on or off that every request is answered with 503.
    pub fn be_away(&self, is_away: bool) {
        self.world.lock().unwrap().is_away = is_away;
    }

    /// Returns role and path of every request since the last call.
    pub fn requests(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.world.lock().unwrap().requests)
    }

    /// Returns the environment with which a job gets its OIDC token.
    pub fn job(&self) -> [(&'static str, String); 2] {
        [
            (
                "ACTIONS_ID_TOKEN_REQUEST_URL",
                format!("{}/oidc?api-version=2.0", self.address),
            ),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", REQUEST_TOKEN.to_owned()),
        ]
    }
}

fn refused(status: StatusCode, why: &str) -> Response {
    let errors: Vec<_> = (!why.is_empty()).then_some(why).into_iter().collect();
    (status, Json(json!({"errors": errors}))).into_response()
}

async fn answer(
    State(world): State<Arc<Mutex<World>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let latency = world.lock().unwrap().latency;
    tokio::time::sleep(latency).await;
    let mut world = world.lock().unwrap();
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if uri.path() == "/oidc" {
        return if header("authorization") == format!("Bearer {REQUEST_TOKEN}") {
            Json(json!({"value": JOB_TOKEN})).into_response()
        } else {
            StatusCode::UNAUTHORIZED.into_response()
        };
    }
    if header("x-vault-namespace") != world.namespace {
        return refused(StatusCode::NOT_FOUND, "no handler for route");
    }
    if world.is_away {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "Vault is sealed");
    }
    let path = uri.path().strip_prefix("/v1/").unwrap_or_default().to_owned();
    if method == Method::POST && path.starts_with("auth/") {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let role = match path.as_str() {
            "auth/jwt/login" if body["jwt"] == JOB_TOKEN => body["role"].as_str(),
            "auth/approle/login" if body["secret_id"] == "the-roles-secret" => body["role_id"].as_str(),
            _ => None,
        };
        let Some(role) = role.filter(|role| world.roles.contains_key(*role)) else {
            return refused(StatusCode::BAD_REQUEST, "role could not be found");
        };
        let token = format!("hvs.{}", uuid::Uuid::new_v4().simple());
        let uses = world.uses;
        world.tokens.insert(token.clone(), (role.to_owned(), uses));
        world.requests.push((role.to_owned(), path));
        let auth = json!({"client_token": token, "lease_duration": 60, "num_uses": uses.unwrap_or(0)});
        return Json(json!({"auth": auth})).into_response();
    }
    let role = match world.tokens.get_mut(header("x-vault-token")) {
        Some((_, Some(0))) | None => String::new(),
        Some((role, uses)) => {
            *uses = uses.map(|uses| uses - 1);
            role.clone()
        }
    };
    world.requests.push((role.clone(), path.clone()));
    if path == "auth/token/lookup-self" && !role.is_empty() {
        return Json(json!({"data": {"path": "auth/jwt/login"}})).into_response();
    }
    let is_allowed = |prefix: &String| path.starts_with(prefix.as_str());
    if !world
        .roles
        .get(&role)
        .is_some_and(|prefixes| prefixes.iter().any(is_allowed))
    {
        return refused(
            StatusCode::FORBIDDEN,
            "1 error occurred:\n\t* permission denied\n\n",
        );
    }
    // Vault accepts both methods for a write.
    if [Method::POST, Method::PUT].contains(&method) {
        return transit(
            &mut world,
            &path,
            &serde_json::from_slice(&body).unwrap_or_default(),
        );
    }
    if let Some(fields) = path.strip_prefix("kv/").and_then(|path| world.plain.get(path)) {
        return Json(json!({"data": fields})).into_response();
    }
    let about = |number: usize, there: bool| json!({"version": number, "destroyed": false, "deletion_time": if there { "" } else { "2026-01-01T00:00:00Z" }});
    if let Some(versions) = path
        .strip_prefix("secret/metadata/")
        .and_then(|path| world.secrets.get(path))
    {
        let each = versions.iter().enumerate();
        let each = each.map(|(at, version)| ((at + 1).to_string(), about(at + 1, version.is_some())));
        let each: serde_json::Map<String, Value> = each.collect();
        return Json(json!({"data": {"current_version": versions.len(), "versions": each}})).into_response();
    }
    if let Some(versions) = path
        .strip_prefix("secret/data/")
        .and_then(|path| world.secrets.get(path))
    {
        let asked = uri
            .query()
            .and_then(|query| query.strip_prefix("version=")?.parse().ok());
        let number: usize = asked.unwrap_or(versions.len());
        return match versions.get(number.wrapping_sub(1)) {
            Some(Some(fields)) => {
                Json(json!({"data": {"data": fields, "metadata": about(number, true)}})).into_response()
            }
            Some(None) => {
                let deleted = json!({"data": {"data": null, "metadata": about(number, false)}});
                (StatusCode::NOT_FOUND, Json(deleted)).into_response()
            }
            None => refused(StatusCode::NOT_FOUND, ""),
        };
    }
    refused(StatusCode::NOT_FOUND, "")
}

/// Answers requests to the transit engine, as documented:
/// <https://developer.hashicorp.com/vault/api-docs/secret/transit#encrypt-data>
fn transit(world: &mut World, path: &str, body: &Value) -> Response {
    let parts: Vec<_> = path.split('/').collect();
    match parts[..] {
        ["transit", "encrypt", key] => {
            let ciphertext = format!("vault:v1:{}", uuid::Uuid::new_v4().simple());
            let kept = (
                key.to_owned(),
                body["plaintext"].clone(),
                body["associated_data"].clone(),
            );
            world.transit.insert(ciphertext.clone(), kept);
            Json(json!({"data": {"ciphertext": ciphertext, "key_version": 1}})).into_response()
        }
        ["transit", "decrypt", key] => {
            let ciphertext = body["ciphertext"].as_str().unwrap_or_default();
            match world.transit.get(ciphertext) {
                Some((of, plaintext, data)) if of == key && *data == body["associated_data"] => {
                    Json(json!({"data": {"plaintext": plaintext}})).into_response()
                }
                _ => refused(StatusCode::BAD_REQUEST, "cipher: message authentication failed"),
            }
        }
        _ => refused(StatusCode::NOT_FOUND, ""),
    }
}
