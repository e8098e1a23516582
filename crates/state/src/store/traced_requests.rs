//! [`TracedConnector`]: adds a span to each request of the `object_store` crate.

use async_trait::async_trait;
use http::header::CONTENT_LENGTH;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
    },
};
use tracing::Instrument as _;

use konverge_base::spans;

/// Connects like the `object_store` crate, with a span around each request.
#[derive(Debug, Default)]
pub(super) struct TracedConnector(ReqwestConnector);

impl HttpConnector for TracedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(TracedService(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct TracedService(HttpClient);

#[async_trait]
impl HttpService for TracedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().host().unwrap_or_default();
        let span = spans::request(request.method().as_str(), host);
        let answer = self.0.execute(request).instrument(span.clone()).await;
        if let Ok(answer) = &answer {
            let bytes = answer.headers().get(CONTENT_LENGTH);
            let bytes = bytes.and_then(|bytes| bytes.to_str().ok()?.parse().ok());
            spans::answered(&span, answer.status().as_u16(), bytes);
        }
        answer
    }
}
