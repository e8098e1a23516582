//! The HTTP server: routes, start and stop.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::StatusCode,
    middleware,
    response::Response,
    routing::get,
};
use konverge_base::error::{ErrorKind, UserError};
use konverge_portal::{html, openapi};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    actions::PortalActions,
    answer::{Form, RequestError, plain},
    api,
    guard::guard,
    login::{Login, LoginSettings},
    operations, pages,
    shared::Shared,
    sign_in,
    source::PortalSource,
};

/// The maximum size of a request's body in bytes. Forms only have a few short texts.
const LONGEST_BODY: usize = 16 << 10;

/// An error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        why: std::io::Error,
    },
    /// The connection of the server failed.
    #[error("the server failed")]
    Io(#[from] std::io::Error),
}

impl From<ListenError> for UserError {
    fn from(error: ListenError) -> Self {
        Self::from_error(ErrorKind::Usage, error).hint("name a free port: `--listen 127.0.0.1:0` takes one")
    }
}

/// Listens on an address.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|why| ListenError::Listen { address, why })
}

/// The portal as an HTTP server.
pub struct Portal(Router);

impl Portal {
    /// Creates a portal without a login, for this machine only. Nobody can request an operation.
    pub fn new(source: Box<dyn PortalSource>) -> Self {
        Self::with(Shared::new(source, None))
    }

    /// Creates a portal with a login.
    ///
    /// # Errors
    /// The login cannot be set up.
    pub fn with_login(
        source: Box<dyn PortalSource>,
        actions: Box<dyn PortalActions>,
        settings: LoginSettings,
    ) -> Result<Self, UserError> {
        let login = Login::new(settings, actions)?;
        Ok(Self::with(Shared::new(source, Some(login))))
    }

    fn with(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let router = Router::new()
            .merge(pages::routes())
            .merge(api::routes())
            .merge(operations::routes())
            .merge(sign_in::routes())
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
            .layer(DefaultBodyLimit::max(LONGEST_BODY))
            .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
            .with_state(shared);
        Self(router)
    }

    /// Returns the router, for calls without a network connection.
    pub fn into_router(self) -> Router {
        self.0
    }

    /// Serves requests until `stop` is cancelled.
    ///
    /// # Errors
    /// The connection of the server fails.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Result<(), ListenError> {
        let stopped = async move { stop.cancelled().await };
        let service = self.0.into_make_service_with_connect_info::<SocketAddr>();
        Ok(axum::serve(listener, service)
            .with_graceful_shutdown(stopped)
            .await?)
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    plain(
        StatusCode::OK,
        "text/plain; version=0.0.4",
        shared.metrics.text(shared.login().is_none()),
    )
}

async fn nothing_here(request: Request) -> Response {
    RequestError::unknown("this address").answer(Form::from_path(request.uri().path()))
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "login_tests.rs"]
mod login_tests;
