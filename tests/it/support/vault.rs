//! A stateful Vault with the documented API of KV 1 and 2, logins by JWT and AppRole, and policies by path; and GitHub's
//! endpoint for the OIDC token of a job. <https://developer.hashicorp.com/vault/api-docs>

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// The OIDC token that GitHub gives the job, and the one that asks for it.
const JOB_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.the-jobs-own.token";
pub const REQUEST_TOKEN: &str = "request-token-of-the-job";

#[derive(Default)]
struct World {
    /// The versions of each secret of `secret/` (KV 2); `None` for a deleted one.
    secrets: BTreeMap<String, Vec<Option<Value>>>,
    /// The secrets of `kv/` (KV 1).
    plain: BTreeMap<String, Value>,
    /// What each role may read: prefixes of paths.
    roles: HashMap<String, Vec<String>>,
    /// The role of each token.
    tokens: HashMap<String, String>,
    /// The namespace in which everything is.
    namespace: String,
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

    /// Deletes the newest version.
    pub fn delete(&self, path: &str) {
        let mut world = self.world.lock().unwrap();
        *world.secrets.get_mut(path).unwrap().last_mut().unwrap() = None;
    }

    /// Writes a secret of `kv/`.
    pub fn put_plain(&self, path: &str, fields: Value) {
        self.world.lock().unwrap().plain.insert(path.to_owned(), fields);
    }

    /// Lets a role read what starts with one of these.
    pub fn allow(&self, role: &str, prefixes: &[&str]) {
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        self.world.lock().unwrap().roles.insert(role.to_owned(), prefixes);
    }

    /// A token of a role that somebody made by hand.
    pub fn token(&self, role: &str) -> String {
        let token = format!("hvs.{}", uuid::Uuid::new_v4().simple());
        let mut world = self.world.lock().unwrap();
        world.tokens.insert(token.clone(), role.to_owned());
        token
    }

    /// Moves everything into a namespace: a request that does not name it finds nothing.
    pub fn move_to_namespace(&self, name: &str) {
        self.world.lock().unwrap().namespace = name.to_owned();
    }

    /// Ends every session.
    pub fn revoke(&self) {
        self.world.lock().unwrap().tokens.clear();
    }

    /// Role and path of every request since the last call.
    pub fn requests(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.world.lock().unwrap().requests)
    }

    /// The environment by which a job gets its OIDC token.
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
    let mut world = world.lock().unwrap();
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if uri.path() == "/oidc" {
        return match header("authorization") == format!("Bearer {REQUEST_TOKEN}") {
            true => Json(json!({"value": JOB_TOKEN})).into_response(),
            false => StatusCode::UNAUTHORIZED.into_response(),
        };
    }
    if header("x-vault-namespace") != world.namespace {
        return refused(StatusCode::NOT_FOUND, "no handler for route");
    }
    let path = uri.path().strip_prefix("/v1/").unwrap_or_default().to_owned();
    if method == Method::POST {
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
        world.tokens.insert(token.clone(), role.to_owned());
        world.requests.push((role.to_owned(), path));
        return Json(json!({"auth": {"client_token": token, "lease_duration": 60}})).into_response();
    }
    let role = world
        .tokens
        .get(header("x-vault-token"))
        .cloned()
        .unwrap_or_default();
    world.requests.push((role.clone(), path.clone()));
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
