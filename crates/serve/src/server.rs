//! The server: routes, headers of every answer, start and end.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use konverge_base::error::{ErrorKind, UserError};
use konverge_portal::{html, openapi};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Form, RequestError, plain},
    api, pages,
    shared::Shared,
    source::PortalSource,
};

/// The error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        why: std::io::Error,
    },
    /// The connection of the server failed.
    #[error("the server failed: {0}")]
    Io(#[from] std::io::Error),
}

impl From<ListenError> for UserError {
    fn from(error: ListenError) -> Self {
        Self::new(ErrorKind::Usage, error.to_string())
            .hint("name a free port: `--listen 127.0.0.1:0` takes one")
    }
}

/// Listens on an address.
///
/// # Errors
/// The address is in use or not of this machine.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|why| ListenError::Listen { address, why })
}

/// The portal as a server.
pub struct Portal(Router);

impl Portal {
    /// The portal of a source.
    pub fn new(source: Box<dyn PortalSource>) -> Self {
        let shared = Arc::new(Shared::new(source));
        let router = Router::new()
            .merge(pages::routes())
            .merge(api::routes())
            .route(
                "/portal.css",
                get(|| async { plain(StatusCode::OK, "text/css; charset=utf-8", html::style()) }),
            )
            .route(
                "/portal.js",
                get(|| async { plain(StatusCode::OK, "text/javascript; charset=utf-8", html::SCRIPT) }),
            )
            .route(
                "/api/v1/openapi.json",
                get(|| async { plain(StatusCode::OK, "application/json", openapi().to_string()) }),
            )
            .route(
                "/healthz",
                get(|| async { plain(StatusCode::OK, "text/plain; charset=utf-8", "ok\n") }),
            )
            .route("/metrics", get(metrics))
            .fallback(nothing_here)
            .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
            .with_state(shared);
        Self(router)
    }

    /// The routes, to be called without a connection.
    pub fn into_router(self) -> Router {
        self.0
    }

    /// Answers until it is asked to stop.
    ///
    /// # Errors
    /// The connection of the server fails.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Result<(), ListenError> {
        let stopped = async move { stop.cancelled().await };
        Ok(axum::serve(listener, self.0)
            .with_graceful_shutdown(stopped)
            .await?)
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    plain(StatusCode::OK, "text/plain; version=0.0.4", shared.metrics.text())
}

async fn nothing_here(request: Request) -> Response {
    let path = request.uri().path();
    let form = match path.starts_with("/api/") {
        true => Form::Json,
        false => Form::Page(path.matches('/').count().saturating_sub(1)),
    };
    RequestError::Unknown("this address").answer(form)
}

/// Refuses names that lead here from elsewhere, counts, and sets the headers of every answer.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let route = route_of(request.uri().path());
    let mut answer = match is_local(request.headers()) {
        true => next.run(request).await,
        // A page of another site whose name was bound to this address must not read anything.
        false => plain(
            StatusCode::MISDIRECTED_REQUEST,
            "text/plain; charset=utf-8",
            "this server answers for 127.0.0.1, [::1] and localhost only\n",
        ),
    };
    shared.metrics.count_request(route, answer.status().as_u16());
    let headers = answer.headers_mut();
    let policy = HeaderValue::try_from(format!("{}; frame-ancestors 'none'", html::SECURITY));
    if let Ok(policy) = policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "private, no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    answer
}

/// Returns true if the request names this machine.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |name: &str| {
        name.parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    };
    name.eq_ignore_ascii_case("localhost") || is_loopback(name)
}

/// The name of a route for the counters.
fn route_of(path: &str) -> &'static str {
    match path {
        "/" | "/index.html" => "overview",
        "/search.html" => "search",
        _ if path.starts_with("/stacks/") => "stack",
        _ if path.starts_with("/kinds/") => "kind",
        _ if path.starts_with("/api/v1/") => "api",
        _ => "other",
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
