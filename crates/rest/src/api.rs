//! The interface that hides the differences between the APIs of forges.

use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method, Request, StatusCode, header};
use konverge_base::retry;
use konverge_forge::{ForgeError, ForgeKind, Result};
use serde_json::Value;

/// A request to an API, without the parts that all requests share: address, authentication, headers.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// The path below the API, with the query.
    pub path: &'a str,
    /// For a GET, the `ETag` of the cached response.
    pub etag: Option<&'a str>,
    /// The JSON body, if there is one.
    pub body: Option<&'a Value>,
}

impl Exchange<'_> {
    /// Returns the name of the request for errors: method and path, without the query.
    pub fn operation(&self) -> String {
        operation(self.method, self.path)
    }

    /// Builds the HTTP request for a complete URI, or for a path that the client completes.
    ///
    /// # Errors
    /// The text is not a valid URI.
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

/// Returns the name of a request for errors: method and path, without the query.
pub(crate) fn operation(method: &Method, path: &str) -> String {
    format!("{method} {}", path.split('?').next().unwrap_or_default())
}

/// The maximum size of a response in bytes. The largest ones, pages of 100 pull requests, have a few MiB.
pub const MOST_BYTES: usize = 64 << 20;

/// A response with any status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The body of the response.
    pub body: String,
}

/// The wait for a rate limit that does not say how long it lasts. GitHub's documentation asks for at least a minute.
pub const UNSAID: Duration = Duration::from_secs(60);

impl Answer {
    /// Returns the error for a status that means the same at every forge. `permission` is the one that the request
    /// needs, `message` is the forge's.
    pub fn error(&self, forge: ForgeKind, operation: &str, permission: &str, message: &str) -> ForgeError {
        let (operation, permission) = (operation.to_owned(), permission.to_owned());
        match self.status.as_u16() {
            429 => ForgeError::Limited {
                forge,
                operation,
                wait: retry::retry_after(&self.headers).unwrap_or(UNSAID),
            },
            401 => ForgeError::Token { forge, operation },
            403 => ForgeError::Forbidden {
                forge,
                operation,
                permission,
            },
            404 => ForgeError::NotFound {
                forge,
                operation,
                permission,
            },
            status @ 500..=599 => ForgeError::Server {
                forge,
                operation,
                status,
            },
            status => ForgeError::Refused {
                forge,
                operation,
                status,
                message: message.chars().take(500).collect(),
            },
        }
    }
}

/// The permission that a request needs, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct TokenPermission(pub &'static str);

/// The API of one forge.
#[async_trait]
pub trait RestApi: Send + Sync {
    /// Returns the forge, for errors.
    fn kind(&self) -> ForgeKind;

    /// Returns the path of the API on the server without a trailing `/`, such as `/api/v3`, or empty.
    fn base_path(&self) -> &str;

    /// Gets or renews the token, if necessary. This is a step of its own before each request, so that after its
    /// failure it is certain that the request was not sent.
    ///
    /// # Errors
    /// The login fails.
    async fn log_in(&self) -> Result<()> {
        Ok(())
    }

    /// Sends a request once, without following redirects.
    ///
    /// # Errors
    /// No response, or no login.
    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer>;

    /// Returns the error of a response whose status is no success. `need` is the permission for the request.
    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError;
}
