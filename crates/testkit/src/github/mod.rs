//! An in-process fake of GitHub. It stores what clients write, returns lists in pages, checks permissions and limits,
//! and fails on request. A request that it does not know, or that GitHub's own description forbids, fails the test when
//! the fake is dropped.

mod answers;
mod contract;
mod dispatches;
mod git_data;
mod history;
mod installed_app;
mod routes;
mod world;
mod writes;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

#[allow(unused_imports)] // the benches share this support and use less of it
pub use world::{Comment, DispatchableWorkflow, Issue, Pull, Token, World};

/// What the fake does instead of carrying out a request, or after it.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends this response, and carries nothing out.
    Answer(u16, Vec<(&'static str, String)>, Value),
    /// Carries out the request, and breaks off the response.
    DropAfter,
    /// Carries out the request, and right after it somebody else sets this status on the same commit.
    ThenStatus(Value),
    /// Breaks off before anything is carried out.
    DropBefore,
    /// Never answers.
    Hang,
    /// Carries out the request, and sends half of the response.
    Truncate,
    /// Waits until the test releases the request, then carries it out.
    Hold(Arc<Hold>),
    /// Carries out the request, and sends the response only when the test releases it.
    HoldAnswer(Arc<Hold>),
}

/// A request that waits for the test.
#[derive(Debug, Default)]
pub struct Hold {
    came: tokio::sync::Notify,
    let_go: tokio::sync::Notify,
}

impl Hold {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until the request has come.
    pub async fn came(&self) {
        self.came.notified().await;
    }

    /// Releases the request.
    pub fn let_go(&self) {
        self.let_go.notify_one();
    }
}

/// A recorded request.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub body: Value,
    pub status: u16,
}

struct Inner {
    world: World,
    script: VecDeque<(String, String, Act)>,
    broken: Option<(String, String, Act)>,
    requests: Vec<Recorded>,
    violations: Vec<String>,
}

/// The running fake.
pub struct FakeGithub {
    address: SocketAddr,
    prefix: &'static str,
    inner: Arc<Mutex<Inner>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    prefix: &'static str,
    address: SocketAddr,
}

impl FakeGithub {
    /// Starts the fake with the paths of github.com.
    pub async fn start(world: World) -> Self {
        Self::start_at(world, "").await
    }

    /// Starts the fake as a GitHub Enterprise server, whose API is below `/api/v3`.
    pub async fn start_at(world: World, prefix: &'static str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Mutex::new(Inner {
            world,
            script: VecDeque::new(),
            broken: None,
            requests: Vec::new(),
            violations: Vec::new(),
        }));
        let shared = Shared {
            inner: inner.clone(),
            prefix,
            address,
        };
        let router = Router::new().fallback(serve).with_state(shared);
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            address,
            prefix,
            inner,
            server,
        }
    }

    /// Returns the value for GITHUB_API_URL.
    pub fn api_url(&self) -> String {
        format!("http://{}{}", self.address, self.prefix)
    }

    /// Sets the act for the next request with this method and a path that ends in this way.
    pub fn next(&self, method: &str, path_end: &str, act: Act) {
        let rule = (method.to_owned(), path_end.to_owned(), act);
        self.lock().script.push_back(rule);
    }

    /// Sets the act for every request with this method and exactly this path, from now on; `None` removes it.
    pub fn broken(&self, route: Option<(&str, &str, Act)>) {
        self.lock().broken = route.map(|(method, path, act)| (method.to_owned(), path.to_owned(), act));
    }

    /// Reads or changes the state of the fake.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.lock().world)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    /// Returns the number of requests that write.
    pub fn writes(&self) -> usize {
        let write = |r: &&Recorded| r.method != "GET" && r.path != "/graphql";
        self.lock().requests.iter().filter(write).count()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Drop for FakeGithub {
    fn drop(&mut self) {
        self.server.abort();
        let Ok(inner) = self.inner.lock() else { return };
        if !std::thread::panicking() {
            assert!(
                inner.violations.is_empty(),
                "requests GitHub would not take:\n{}",
                inner.violations.join("\n")
            );
            assert!(
                inner.script.is_empty(),
                "the script was not played to its end: {:?}",
                inner.script
            );
        }
    }
}

async fn serve(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = parts.method.to_string();
    let path = parts.uri.path().to_owned();
    let query = decode(parts.uri.query().unwrap_or_default());
    let taken = |of: fn(&Act) -> Option<&Arc<Hold>>| {
        let mut inner = shared.inner.lock().unwrap();
        let at = inner
            .script
            .iter()
            .position(|(m, end, act)| *m == method && path.ends_with(end.as_str()) && of(act).is_some());
        let act = at.and_then(|at| inner.script.remove(at)).map(|(_, _, act)| act);
        act.as_ref().and_then(of).cloned()
    };
    let before = taken(|act| match act {
        Act::Hold(hold) => Some(hold),
        _ => None,
    });
    let after = taken(|act| match act {
        Act::HoldAnswer(hold) => Some(hold),
        _ => None,
    });
    let wait = async |hold: Option<Arc<Hold>>| {
        if let Some(hold) = hold {
            hold.came.notify_one();
            hold.let_go.notified().await;
        }
    };
    wait(before).await;
    let answer = {
        let mut inner = shared.inner.lock().unwrap();
        answer(&mut inner, &shared, &method, &path, &query, &body, &parts.headers)
    };
    wait(after).await;
    match answer {
        Some(response) => response,
        None => std::future::pending().await,
    }
}

fn answer(
    inner: &mut Inner,
    shared: &Shared,
    method: &str,
    path: &str,
    query: &BTreeMap<String, String>,
    body: &Value,
    headers: &HeaderMap,
) -> Option<Response> {
    // On a server GraphQL is beside the REST API: `/api/graphql` and `/api/v3`.
    let graphql = path == format!("{}/graphql", shared.prefix.trim_end_matches("/v3"));
    let within = if graphql {
        Some("/graphql")
    } else {
        path.strip_prefix(shared.prefix)
    };
    let Some(route) = within else {
        inner
            .violations
            .push(format!("{method} {path}: not below {}", shared.prefix));
        return Some(reply(404, &[], &json!({"message": "Not Found"})));
    };
    if !headers.contains_key(header::USER_AGENT) {
        inner.violations.push(format!(
            "{method} {route}: GitHub answers no request without a user agent"
        ));
        return Some(reply(
            403,
            &[],
            &json!({"message": "Request forbidden by administrative rules."}),
        ));
    }
    if let Err(why) = contract::check(method, route, query, body) {
        inner.violations.push(format!("{method} {route}: {why}"));
    }
    let scripted = inner
        .script
        .iter()
        .position(|(m, end, _)| m == method && route.ends_with(end.as_str()));
    let act = scripted
        .and_then(|at| inner.script.remove(at))
        .map(|(_, _, act)| act);
    let fault = inner.broken.as_ref();
    let fault = fault.filter(|(broken, path, _)| method == broken && path == route);
    let act = act.or(fault.map(|(.., act)| act.clone()));
    let record = |status: u16, inner: &mut Inner| {
        inner.requests.push(Recorded {
            method: method.to_owned(),
            path: route.to_owned(),
            query: query.clone(),
            body: body.clone(),
            status,
        });
    };
    match act {
        Some(Act::Answer(status, headers, value)) => {
            record(status, inner);
            let headers: Vec<_> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
            return Some(reply(status, &headers, &value));
        }
        Some(Act::DropBefore) => {
            record(0, inner);
            return Some(broken(200));
        }
        Some(Act::Hang) => {
            record(0, inner);
            return None;
        }
        Some(Act::DropAfter | Act::ThenStatus(_) | Act::Truncate | Act::Hold(_) | Act::HoldAnswer(_))
        | None => {}
    }
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer ").or(value.strip_prefix("token ")))
        .unwrap_or_default();
    let (status, value) = inner
        .world
        .route(token, method, route, query, body)
        .unwrap_or_else(|| {
            inner
                .violations
                .push(format!("{method} {route}: the fake does not know this route"));
            (501, json!({"message": "unknown route"}))
        });
    record(status, inner);
    if let Err(why) = contract::check_answer(method, route, status, &value) {
        inner.violations.push(format!(
            "{method} {route} is answered as GitHub never does: {why}"
        ));
    }
    if let Some(Act::ThenStatus(said)) = &act {
        let commit = route.rsplit('/').next().unwrap_or_default().to_owned();
        inner.world.statuses.push((commit, said.clone()));
    }
    if matches!(act, Some(Act::DropAfter)) {
        return Some(broken(status));
    }
    if matches!(act, Some(Act::Truncate)) {
        let whole = value.to_string();
        let half = whole.chars().take(whole.chars().count() / 2).collect::<String>();
        return Some(with_body(status, &[], Body::from(half)));
    }
    let response = paged(shared, route, query, headers, status, value);
    if let Some(recorded) = inner.requests.last_mut() {
        recorded.status = response.status().as_u16();
    }
    Some(response)
}

/// Builds the response: a list becomes pages with a `Link`, a GET gets an `ETag`.
fn paged(
    shared: &Shared,
    route: &str,
    query: &BTreeMap<String, String>,
    headers: &HeaderMap,
    status: u16,
    value: Value,
) -> Response {
    let number = |key: &str, default: usize| query.get(key).and_then(|v| v.parse().ok()).unwrap_or(default);
    let (size, page) = (number("per_page", 30).clamp(1, 100), number("page", 1).max(1));
    let mut value = value;
    let mut extra: Vec<(&str, String)> = Vec::new();
    let list = match &mut value {
        Value::Array(items) => Some(items),
        Value::Object(map) => {
            let key = ["check_runs", "commits"]
                .into_iter()
                .find(|key| map.contains_key(*key));
            key.and_then(|key| map.get_mut(key)).and_then(Value::as_array_mut)
        }
        _ => None,
    };
    if let Some(items) = list {
        let all = items.len();
        *items = items.iter().skip((page - 1) * size).take(size).cloned().collect();
        if page * size < all {
            let mut next = query.clone();
            next.insert("page".into(), (page + 1).to_string());
            let next: Vec<_> = next.iter().map(|(k, v)| format!("{k}={v}")).collect();
            extra.push((
                "link",
                format!(
                    "<http://{}{}{route}?{}>; rel=\"next\"",
                    shared.address,
                    shared.prefix,
                    next.join("&")
                ),
            ));
        }
    }
    if let Some(needs) = value.get("x-needs").and_then(Value::as_str) {
        extra.push(("x-accepted-github-permissions", needs.to_owned()));
    }
    let etag = format!("\"{}\"", blake3::hash(value.to_string().as_bytes()).to_hex());
    if status == 200 {
        if headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == etag.as_bytes())
        {
            return Response::builder().status(304).body(Body::empty()).unwrap();
        }
        extra.push(("etag", etag));
    }
    let extra: Vec<_> = extra.iter().map(|(k, v)| (*k, v.as_str())).collect();
    reply(status, &extra, &value)
}

fn reply(status: u16, headers: &[(&str, &str)], value: &Value) -> Response {
    let body = if status == 204 {
        Body::empty()
    } else {
        Body::from(value.to_string())
    };
    with_body(status, headers, body)
}

fn with_body(status: u16, headers: &[(&str, &str)], body: Body) -> Response {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, text) in headers {
        response = response.header(*name, *text);
    }
    response
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .unwrap()
}

/// Returns a response whose body breaks off.
fn broken(status: u16) -> Response {
    let gone = futures::stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("the connection is gone"))]);
    Response::builder()
        .status(if status == 0 { 200 } else { status })
        .body(Body::from_stream(gone))
        .unwrap()
}

fn decode(query: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}
