//! The connections to a server: those of the library, but without Nagle's algorithm, so that each write is
//! sent immediately.
//!
//! The library leaves Nagle's algorithm on. The first request of a connection then waits until the server has
//! acknowledged the end of the TLS handshake, which Linux delays by 40 ms. Go's client, and therefore
//! `kubectl`, disables it as well (`TCPConn.SetNoDelay` is true by default).

use std::sync::Arc;

use http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;
use tracing::Instrument as _;

use konverge_base::spans;

/// Creates a client without credentials except client certificates, and without retries. Each request has a
/// span.
pub(super) fn client(config: kube::Config) -> kube::Result<kube::Client> {
    let host: Arc<str> = config.cluster_url.host().unwrap_or_default().into();
    // With a proxy, the proxy opens the connection to the server, so the library's own client is used.
    let client = if config.proxy_url.is_some() {
        kube::Client::try_from(config)?
    } else {
        direct(config)?
    };
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let span = spans::request(request.method().as_str(), &host);
        let client = client.clone();
        async move {
            let answer = client.send(request).instrument(span.clone()).await;
            if let Ok(answer) = &answer {
                spans::answered(&span, answer.status().as_u16(), None);
            }
            answer.map_err(BoxError::from)
        }
    });
    Ok(ClientBuilder::new(service, namespace).build())
}

fn direct(config: kube::Config) -> kube::Result<kube::Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let gzip = DecompressionLayer::new().gzip(!config.disable_compression);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(gzip)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Builder::new(TokioExecutor::new()).build::<_, Body>(connector));
    let service =
        tower::service_fn(move |request: Request<Body>| tower::ServiceExt::oneshot(service.clone(), request));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}
