//! HTTP responses: their headers, their entity tags, and errors as pages or as JSON.

use std::time::Duration;

use axum::{
    body::Body as HttpBody,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use konverge_base::error::{ErrorKind, UserError};
use konverge_portal::html;
use konverge_report::json;

use super::cache::Body;

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A page, with the number of folders between it and the root.
    Page(usize),
    /// A JSON document.
    Json,
    /// A CSV file. An error is shown as a page.
    Csv,
}

impl Form {
    /// Returns the format of error responses for a path.
    pub(super) fn from_path(path: &str) -> Self {
        if path.starts_with("/api/") {
            Self::Json
        } else {
            Self::Page(path.matches('/').count().saturating_sub(1))
        }
    }

    /// Returns the number of folders between a page and the root.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Page(depth) => depth,
            Self::Json | Self::Csv => 0,
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Page(_) => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

/// Creates the response with a body, or `304 Not Modified` if the client already has this body.
pub(super) fn found(body: &Body, form: Form, request: &HeaderMap) -> Response {
    let known = request
        .get(header::IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| {
        tags.split(',').any(|tag| {
            let tag = tag.trim();
            tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == body.etag
        })
    });
    let (status, bytes) = if is_known {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, body.bytes.clone())
    };
    let mut answer = plain(status, form.media_type(), bytes);
    if let Ok(tag) = HeaderValue::from_str(&body.etag) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

/// Creates a response without an entity tag.
pub(super) fn plain(status: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut answer = Response::new(HttpBody::from(bytes.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// An error as the response to a request.
#[derive(Debug)]
pub(super) struct RequestError {
    /// The status of the response.
    pub status: StatusCode,
    error: Box<UserError>,
    /// The seconds to wait before the next request.
    wait: Option<u64>,
}

/// The data cannot be read.
impl From<UserError> for RequestError {
    fn from(error: UserError) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            error: Box::new(error),
            wait: None,
        }
    }
}

impl RequestError {
    fn new(status: StatusCode, kind: ErrorKind, message: impl Into<String>, hint: &str) -> Self {
        Self {
            status,
            ..UserError::new(kind, message).hint(hint).into()
        }
    }

    /// The request is invalid.
    pub(super) fn wrong(message: impl Into<String>, hint: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorKind::Usage, message, hint)
    }

    /// No such stack, page or serial is recorded.
    pub(super) fn unknown(what: &str) -> Self {
        let message = format!("the portal does not have {what}");
        let hint = "the overview lists every stack";
        Self::new(StatusCode::NOT_FOUND, ErrorKind::State, message, hint)
    }

    /// The sender is not signed in.
    pub(super) fn signed_out(message: impl Into<String>) -> Self {
        let hint = "open the overview to sign in; a script sends `Authorization: Bearer TOKEN` to /api/v1";
        Self::new(StatusCode::UNAUTHORIZED, ErrorKind::Policy, message, hint)
    }

    /// The sender has no permission.
    pub(super) fn forbidden(message: impl Into<String>, hint: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorKind::Policy, message, hint)
    }

    /// The request does not match the recorded data.
    pub(super) fn conflict(message: impl Into<String>, hint: &str) -> Self {
        Self::new(StatusCode::CONFLICT, ErrorKind::State, message, hint)
    }

    /// Too many requests; with the time to wait.
    pub(super) fn too_many(wait: Duration) -> Self {
        let wait = wait.as_secs() + 1;
        let (message, hint) = ("there were too many requests", format!("try again in {wait} s"));
        Self {
            wait: Some(wait),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorKind::Policy, message, &hint)
        }
    }

    /// Converts the error to a response.
    pub(super) fn answer(self, form: Form) -> Response {
        let Self { status, error, wait } = self;
        let title = match status {
            StatusCode::BAD_REQUEST => "The request is invalid",
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::UNAUTHORIZED => "Nobody is signed in",
            StatusCode::FORBIDDEN => "This is not allowed",
            StatusCode::CONFLICT => "The request is not possible now",
            StatusCode::TOO_MANY_REQUESTS => "Too many requests",
            _ => "The portal cannot answer",
        };
        let mut answer = match form {
            Form::Json => plain(status, form.media_type(), json::failure(&error)),
            Form::Page(_) | Form::Csv => {
                let page = Form::Page(form.depth());
                let text = html::failure(title, &error.message, &error.hints, form.depth());
                plain(status, page.media_type(), text)
            }
        };
        let headers = answer.headers_mut();
        if let Some(wait) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}
