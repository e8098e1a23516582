//! An in-process fake of GitLab. It stores what clients write, returns lists in pages, and checks permissions.
//! Konverge's client was never run against a real GitLab, so a request or response that is not in GitLab's own
//! description fails the test when the fake is dropped. git answers the questions about commits.

mod contract;
mod world;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::header,
    response::Response,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use contract::Operation;
pub use contract::operations;
pub use world::{BOT, HERE, Issue, MergeRequest, Note, World};

/// What the fake does instead of carrying out a request, or after it.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends this response, and carries nothing out.
    Answer(u16, Vec<(&'static str, &'static str)>, &'static str),
    /// Carries out the request, and breaks off the response.
    DropAfter,
}

/// A recorded request.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub method: String,
    /// The decoded path.
    pub path: String,
    pub body: Value,
    pub status: u16,
    /// The operation of GitLab's description.
    pub operation: String,
}

struct Inner {
    world: World,
    script: Vec<(String, String, Act)>,
    requests: Vec<Recorded>,
    violations: Vec<String>,
}

/// The running fake.
pub struct FakeGitlab {
    address: SocketAddr,
    prefix: &'static str,
    inner: Arc<Mutex<Inner>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    prefix: &'static str,
}

impl FakeGitlab {
    /// Starts the fake at the root of its server.
    pub async fn start(world: World) -> Self {
        Self::start_at(world, "").await
    }

    /// Starts the fake as an instance below a path.
    pub async fn start_at(world: World, prefix: &'static str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Mutex::new(Inner {
            world,
            script: Vec::new(),
            requests: Vec::new(),
            violations: Vec::new(),
        }));
        let shared = Shared {
            inner: inner.clone(),
            prefix,
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

    /// Returns the value for CI_SERVER_URL.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.prefix)
    }

    /// Returns the value for CI_API_V4_URL.
    pub fn api_url(&self) -> String {
        format!("{}/api/v4", self.url())
    }

    /// Sets the act for the next request with this method and a path that ends in this way.
    pub fn next(&self, method: &str, path_end: &str, act: Act) {
        let rule = (method.to_owned(), path_end.to_owned(), act);
        self.lock().script.push(rule);
    }

    /// Reads or changes the state of the fake.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.lock().world)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Drop for FakeGitlab {
    fn drop(&mut self) {
        self.server.abort();
        let Ok(inner) = self.inner.lock() else { return };
        if !std::thread::panicking() {
            assert!(
                inner.violations.is_empty(),
                "what GitLab's description does not have:\n{}",
                inner.violations.join("\n")
            );
            assert!(
                inner.script.is_empty(),
                "not played to its end: {:?}",
                inner.script
            );
        }
    }
}

async fn serve(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let query: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let token = parts
        .headers
        .get("private-token")
        .and_then(|token| token.to_str().ok());
    let mut inner = shared.inner.lock().unwrap();
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let Some(route) = path.strip_prefix(&format!("{}/api/v4", shared.prefix)) else {
        inner
            .violations
            .push(format!("{method} {path} is not below the API"));
        return reply(404, &[], r#"{"error":"404 Not Found"}"#);
    };
    answer(
        &mut inner,
        method,
        route,
        &query,
        &body,
        token.unwrap_or_default(),
    )
}

fn answer(
    inner: &mut Inner,
    method: &str,
    route: &str,
    query: &[(String, String)],
    body: &Value,
    token: &str,
) -> Response {
    let decoded = percent_decode_str(route).decode_utf8_lossy().into_owned();
    let operation = Operation::of(method, route);
    let checked = operation.map_or(Err("there is no such operation".to_owned()), |operation| {
        operation.check(query, body)
    });
    if let Err(why) = checked {
        inner.violations.push(format!("{method} {decoded}: {why}"));
    }
    let act = inner
        .script
        .iter()
        .position(|(wanted, end, _)| wanted == method && decoded.ends_with(end.as_str()));
    let act = act.map(|at| inner.script.remove(at).2);
    let record = |inner: &mut Inner, status: u16| {
        inner.requests.push(Recorded {
            method: method.to_owned(),
            path: decoded.clone(),
            body: body.clone(),
            status,
            operation: operation.map(Operation::name).unwrap_or_default(),
        });
    };
    if let Some(Act::Answer(status, headers, text)) = &act {
        record(inner, *status);
        return reply(*status, headers, text);
    }
    let parts: Vec<String> = route
        .split('/')
        .skip(1)
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let done = inner.world.route(token, method, &parts, query, body);
    let (status, value) = done.unwrap_or_else(|| {
        inner
            .violations
            .push(format!("{method} {decoded}: the fake does not know this route"));
        (501, json!({"message": "unknown route"}))
    });
    record(inner, status);
    if let (Some(operation), 200..=299) = (operation, status)
        && let Err(why) = operation.check_answer(&value)
    {
        inner.violations.push(format!("{method} {decoded}: {why}"));
    }
    if matches!(act, Some(Act::DropAfter)) {
        let gone = std::io::Error::other("the connection is gone");
        let body = Body::from_stream(futures::stream::iter([Err::<Vec<u8>, _>(gone)]));
        return Response::builder().status(status).body(body).unwrap();
    }
    paged(query, status, value)
}

/// Builds a page of a list. A header names the next page.
fn paged(query: &[(String, String)], status: u16, value: Value) -> Response {
    let number = |key: &str, default: usize| {
        let found = query.iter().find(|(name, _)| name == key);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
    };
    let Value::Array(items) = &value else {
        return reply(status, &[], &value.to_string());
    };
    let (size, page) = (number("per_page", 20), number("page", 1));
    let shown: Vec<_> = items.iter().skip((page - 1) * size).take(size).collect();
    let next = if page * size < items.len() {
        (page + 1).to_string()
    } else {
        String::new()
    };
    reply(status, &[("x-next-page", &next)], &json!(shown).to_string())
}

fn reply(status: u16, headers: &[(&str, &str)], text: &str) -> Response {
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let body = match status {
        204 => Body::empty(),
        _ => Body::from(text.to_owned()),
    };
    response.body(body).unwrap()
}
