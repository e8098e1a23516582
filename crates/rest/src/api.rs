//! The differences between the APIs of forges.

use async_trait::async_trait;
use http::{HeaderMap, Method, Request, StatusCode, header};
use konverge_forge::{ForgeError, ForgeKind};
use serde_json::Value;

/// One request of an API, without the parts that all requests share: address, login, headers.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path below the API, with its query.
    pub path: &'a str,
    /// The `ETag` of the answer that is known, for a GET.
    pub etag: Option<&'a str>,
    /// The body, if there is one.
    pub body: Option<&'a Value>,
}

impl Exchange<'_> {
    /// Returns the name of the call in errors: its method, and its path without the query.
    pub fn operation(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }

    /// Builds the request to a URI, or to a path that is completed later.
    ///
    /// # Errors
    /// The text is no URI.
    pub fn request(&self, uri: &str) -> Result<Request<Vec<u8>>, http::Error> {
        let mut request = Request::builder().method(self.method).uri(uri);
        if let Some(etag) = self.etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let Some(body) = self.body else {
            return request.body(Vec::new());
        };
        request
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
    }
}

/// The maximum size of an answer, in bytes. The largest ones, pages of 100 pull requests, have a few MiB.
pub const MOST_BYTES: usize = 64 << 20;

/// A response, with any status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
}

/// The permission that a call needs, for its error messages.
#[derive(Debug, Clone, Copy)]
pub struct TokenPermission(pub &'static str);

/// The API of one forge.
#[async_trait]
pub trait RestApi: Send + Sync {
    /// Returns the forge whose API it is, for errors.
    fn kind(&self) -> ForgeKind;

    /// Returns the path of the API on its server, without a `/` at its end: `/api/v3`, or nothing.
    fn base_path(&self) -> &str;

    /// Gets a token, if the login must be renewed. Called before each request, so that a failure says that nothing was sent.
    ///
    /// # Errors
    /// There is no login.
    async fn log_in(&self) -> Result<(), ForgeError> {
        Ok(())
    }

    /// Sends one request, once, and follows no redirect.
    ///
    /// # Errors
    /// There is no answer, or no login.
    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer, ForgeError>;

    /// Returns the error of a response, if it is one. `need` is the permission for the call.
    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> Option<ForgeError>;
}
