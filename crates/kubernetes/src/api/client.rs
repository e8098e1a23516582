//! Requests to one cluster, with deadlines, retries, a limit of concurrent requests, and collected warnings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    apply_body::apply_body,
    connect,
    error::{ApiError, ApiStatus},
};
use konverge_base::{interrupt::Interrupt, model::ClusterName, retry};
use konverge_cloud::CloudError;

/// The deadline of a request, including the body of the response.
const DEADLINE: Duration = Duration::from_secs(45);

/// The user agent in audit logs.
const USER_AGENT: &str = concat!("konverge/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub method: Method,
    /// The path, already percent-encoded.
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    /// The body with its content type.
    pub body: Option<(&'static str, Vec<u8>)>,
    pub accept: &'static str,
    /// True if the request names the version of its object. After a conflict the sender must read the object
    /// again, so the request is not retried unchanged.
    pub bound: bool,
}

/// A successful response.
#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    pub value: Value,
    /// The `Warning` headers, such as deprecations and duplicate keys.
    pub warnings: Vec<String>,
}

/// The API of one cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    client: kube::Client,
    pub name: ClusterName,
    budget: Arc<Semaphore>,
    sent: Arc<AtomicU64>,
    policy: retry::RetryPolicy,
    /// Signals that the run was asked to stop.
    pub interrupt: Interrupt,
}

impl ApiRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            query: Vec::new(),
            body: None,
            accept: "application/json",
            bound: false,
        }
    }

    /// Returns a patch with a body of this content type.
    pub(crate) fn patch(path: String, content_type: &'static str, body: &Value) -> Self {
        Self {
            method: Method::PATCH,
            ..Self::get(path).body(content_type, body)
        }
    }

    /// Marks a request that names the version of its object.
    #[must_use]
    pub(crate) fn bound(self) -> Self {
        Self { bound: true, ..self }
    }

    #[must_use]
    pub(crate) fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, content_type: &'static str, body: &Value) -> Self {
        self.body = Some((content_type, body.to_string().into_bytes()));
        self
    }

    /// Sets the body to the object of a server-side apply.
    #[must_use]
    pub(crate) fn applied(mut self, object: &Value) -> Self {
        self.body = Some(("application/apply-patch+yaml", apply_body(object)));
        self
    }

    fn uri(&self) -> String {
        let mut uri = self.path.clone();
        for (index, (key, value)) in self.query.iter().enumerate() {
            uri.push(if index == 0 { '?' } else { '&' });
            uri.push_str(key);
            uri.push('=');
            uri.push_str(&escape(value));
        }
        uri
    }

    fn to_http(&self) -> Result<http::Request<kube::client::Body>, ApiError> {
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(self.uri())
            .header(header::ACCEPT, self.accept)
            .header(header::USER_AGENT, USER_AGENT);
        let mut bytes = Vec::new();
        if let Some((content_type, body)) = &self.body {
            request = request.header(header::CONTENT_TYPE, *content_type);
            bytes.clone_from(body);
        }
        request
            .body(kube::client::Body::from(bytes))
            .map_err(|error| ApiError::Protocol(error.into()))
    }
}

impl Api {
    pub(crate) fn new(
        client: kube::Client,
        name: ClusterName,
        in_flight: usize,
        interrupt: Interrupt,
    ) -> Self {
        Self {
            client,
            name,
            budget: Arc::new(Semaphore::new(in_flight.max(1))),
            sent: Arc::default(),
            policy: retry::RetryPolicy::default(),
            interrupt,
        }
    }

    /// Returns the number of requests sent, including retries.
    pub(crate) fn sent_requests(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends a request, with retries.
    pub(crate) async fn call(&self, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
        let verdict = |error: &ApiError| {
            if request.bound && error.is_code(409) {
                retry::RetryDecision::GiveUp
            } else {
                error.verdict()
            }
        };
        let answer = self.policy.run(verdict, || self.send_once(request));
        let (text, warnings) = self.interrupt.unless_silent(answer).await??;
        let value = serde_json::from_slice(&text).map_err(|error| ApiError::Protocol(error.into()))?;
        Ok(ApiResponse { value, warnings })
    }

    /// Reads a path; `None` if it does not exist.
    pub(crate) async fn find(&self, path: impl Into<String>) -> Result<Option<Value>, ApiError> {
        match self.call(&ApiRequest::get(path)).await {
            Ok(answer) => Ok(Some(answer.value)),
            Err(error) if error.is_code(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and returns the body of the response unparsed.
    pub(crate) async fn fetch(&self, request: &ApiRequest) -> Result<Bytes, ApiError> {
        let answer = self.policy.run(ApiError::verdict, || self.send_once(request));
        let (text, _) = self.interrupt.unless_silent(answer).await??;
        Ok(text)
    }

    async fn send_once(&self, request: &ApiRequest) -> Result<(Bytes, Vec<String>), ApiError> {
        let _permit = self.budget.acquire().await.expect("the budget is never closed");
        let exchange = async {
            let (parts, body) = self.send(request).await?.into_parts();
            let bytes = body.collect().await.map_err(network)?.to_bytes();
            if !parts.status.is_success() {
                let status =
                    ApiStatus::read(parts.status.as_u16(), &bytes, retry::retry_after(&parts.headers));
                return Err(ApiError::Status(Box::new(status)));
            }
            Ok((bytes, warnings(&parts.headers)))
        };
        tokio::time::timeout(DEADLINE, exchange)
            .await
            .unwrap_or(Err(ApiError::Deadline(DEADLINE)))
    }

    /// Opens a stream (a watch). The deadline covers only the head of the response.
    pub(crate) async fn open(&self, request: &ApiRequest) -> Result<kube::client::Body, ApiError> {
        let response = tokio::time::timeout(DEADLINE, self.send(request));
        let response = self.interrupt.unless_silent(response).await?;
        let (parts, body) = response
            .unwrap_or(Err(ApiError::Deadline(DEADLINE)))?
            .into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let bytes = body.collect().await.map_err(network)?.to_bytes();
        let status = ApiStatus::read(parts.status.as_u16(), &bytes, retry::retry_after(&parts.headers));
        Err(ApiError::Status(Box::new(status)))
    }

    async fn send(&self, request: &ApiRequest) -> Result<http::Response<kube::client::Body>, ApiError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.client
            .send(request.to_http()?)
            .await
            .map_err(|error| match error {
                kube::Error::Auth(error) => ApiError::Credentials(connect::explain(&error).into()),
                kube::Error::Service(error) if error.is::<CloudError>() => {
                    ApiError::Credentials(error.into())
                }
                other => network(other),
            })
    }
}

fn network(error: impl std::error::Error + Send + Sync + 'static) -> ApiError {
    ApiError::Network(error.into())
}

/// Returns the texts of `Warning` headers of the form `299 - "text"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let all = headers
        .get_all(header::WARNING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    all.filter_map(|text| {
        let quoted = text.split_once('"')?.1;
        let end = quoted.rfind('"')?;
        Some(quoted[..end].replace("\\\"", "\""))
    })
    .collect()
}

/// Percent-encodes one component of a path or a query value.
pub(crate) fn escape(component: &str) -> String {
    let mut escaped = String::with_capacity(component.len());
    let dots = component.bytes().all(|b| b == b'.');
    for byte in component.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~:".contains(&byte) || (byte == b'.' && !dots) {
            escaped.push(byte as char);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_one_component() {
        assert_eq!(
            escape("a/../b?x=1#y"),
            "a%2F%2E%2E%2Fb%3Fx%3D1%23y".replace("%2E%2E", "..")
        );
        assert_eq!(escape(".."), "%2E%2E");
        assert_eq!(escape("system:node"), "system:node");
    }

    #[test]
    fn warnings_are_read() {
        let mut headers = HeaderMap::new();
        headers.append(header::WARNING, r#"299 - "v1 is \"old\"""#.parse().unwrap());
        headers.append(header::WARNING, "nonsense".parse().unwrap());
        assert_eq!(warnings(&headers), ["v1 is \"old\""]);
    }
}
