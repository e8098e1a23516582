//! HTTP requests for stores without a client crate, all with the same client, retries and error conversion.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use reqwest::{Certificate, Client, RequestBuilder, StatusCode};

use super::{Key, StoreError, location::StoreLocation};
use konverge_base::{
    error::SharedError,
    retry::{self, RetryDecision, RetryPolicy},
};

const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of characters of an error body in a message.
const SHOWN: usize = 300;

/// Sends the requests of one store.
pub(super) struct HttpClient {
    pub client: Client,
    pub url: String,
    retry: RetryPolicy,
}

/// The status and the body of an HTTP response.
pub(super) struct HttpAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// The failure of one attempt.
enum HttpProblem {
    /// No response.
    Network(reqwest::Error),
    /// A response that may change on a retry.
    Passing {
        status: StatusCode,
        why: String,
        after: Option<Duration>,
    },
}

impl HttpClient {
    /// Builds the client for a location, with its CA certificates.
    pub(super) fn new(place: &StoreLocation) -> Result<Self, StoreError> {
        let mut builder = konverge_http::client().timeout(REQUEST_DEADLINE);
        if let Some(file) = &place.options.ca_file {
            let unreadable = |why: SharedError| place.error(why.context(format!("certificates of `{file}`")));
            let pem = std::fs::read(file).map_err(|error| unreadable(error.into()))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| unreadable(error.into()))?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder.build().map_err(|error| place.error(error))?;
        Ok(Self {
            client,
            url: place.shown.clone(),
            retry: place.options.retry,
        })
    }

    /// Sends a request, with retries. `make` builds each attempt anew, because its signature may contain the
    /// time.
    pub(super) async fn send(
        &self,
        key: &Key,
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<HttpAnswer, StoreError> {
        let attempt = || self.attempt(make(&self.client));
        let classify = |trouble: &HttpProblem| match trouble {
            HttpProblem::Passing {
                after: Some(after), ..
            } => RetryDecision::RetryAfter(*after),
            _ => RetryDecision::Retry,
        };
        let answer = self.retry.run(classify, attempt).await;
        answer.map_err(|trouble| {
            let why = match trouble {
                HttpProblem::Network(error) => error.into(),
                HttpProblem::Passing { status, why, .. } => format!("{status}: {why}").into(),
            };
            StoreError::Unavailable {
                url: self.url.clone(),
                key: key.to_string(),
                why,
            }
        })
    }

    fn attempt(
        &self,
        request: RequestBuilder,
    ) -> impl Future<Output = Result<HttpAnswer, HttpProblem>> + use<> {
        async move {
            let network = |error: reqwest::Error| HttpProblem::Network(error.without_url());
            let answer = konverge_http::send(request).await.map_err(network)?;
            let status = answer.status();
            let after = retry::retry_after(answer.headers());
            let body = answer.bytes().await.map_err(network)?;
            if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
                return Err(HttpProblem::Passing {
                    status,
                    why: body_excerpt(&body),
                    after,
                });
            }
            Ok(HttpAnswer { status, body })
        }
    }

    /// Returns the error for an unexpected response.
    pub(super) fn status_error(&self, key: &Key, answer: &HttpAnswer) -> StoreError {
        let (url, key) = (self.url.clone(), key.to_string());
        let why = format!("{}: {}", answer.status, body_excerpt(&answer.body)).into();
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => StoreError::Denied { url, key, why },
            _ => StoreError::Unavailable { url, key, why },
        }
    }
}

fn body_excerpt(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(SHOWN).collect();
    text.trim().escape_debug().to_string()
}
