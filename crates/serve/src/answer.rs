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

/// Reasons why a request gets an error response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The request is invalid.
    Wrong {
        /// The mistake in the request.
        message: String,
        /// The correct form.
        hint: String,
    },
    /// No such stack, page or serial is recorded.
    Unknown(&'static str),
    /// The data cannot be read.
    Source(UserError),
    /// The sender is not signed in.
    SignedOut(String),
    /// The sender has no permission.
    Forbidden {
        /// The missing permission.
        message: String,
        /// The people who have the permission, or how to get it.
        hint: String,
    },
    /// The request does not match the recorded data.
    Conflict {
        /// The reason for the conflict.
        message: String,
        /// The instruction for the person.
        hint: String,
    },
    /// Too many requests; with the time to wait.
    TooMany(Duration),
}

impl From<UserError> for RequestError {
    fn from(error: UserError) -> Self {
        Self::Source(error)
    }
}

impl RequestError {
    pub(super) fn wrong(message: impl Into<String>, hint: &str) -> Self {
        Self::Wrong {
            message: message.into(),
            hint: hint.to_owned(),
        }
    }

    pub(super) fn forbidden(message: impl Into<String>, hint: &str) -> Self {
        Self::Forbidden {
            message: message.into(),
            hint: hint.to_owned(),
        }
    }

    /// Converts the error to a response.
    pub(super) fn answer(self, form: Form) -> Response {
        let wait = match &self {
            Self::TooMany(wait) => Some(wait.as_secs() + 1),
            _ => None,
        };
        let is_signed_out = matches!(self, Self::SignedOut(_));
        let mut answer = self.rendered(form);
        let headers = answer.headers_mut();
        if let Some(wait) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
        }
        if is_signed_out {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }

    fn rendered(self, form: Form) -> Response {
        let (status, title, error) = match self {
            Self::Wrong { message, hint } => (
                StatusCode::BAD_REQUEST,
                "The request is invalid",
                UserError::new(ErrorKind::Usage, message).hint(hint),
            ),
            Self::Unknown(what) => (
                StatusCode::NOT_FOUND,
                "Not found",
                UserError::new(ErrorKind::State, format!("the portal does not have {what}"))
                    .hint("the overview lists every stack"),
            ),
            Self::Source(error) => (StatusCode::SERVICE_UNAVAILABLE, "The portal cannot answer", error),
            Self::SignedOut(message) => (
                StatusCode::UNAUTHORIZED,
                "Nobody is signed in",
                UserError::new(ErrorKind::Policy, message).hint(
                    "open the overview to sign in; a script sends `Authorization: Bearer TOKEN` to /api/v1",
                ),
            ),
            Self::Forbidden { message, hint } => (
                StatusCode::FORBIDDEN,
                "This is not allowed",
                UserError::new(ErrorKind::Policy, message).hint(hint),
            ),
            Self::Conflict { message, hint } => (
                StatusCode::CONFLICT,
                "The request is not possible now",
                UserError::new(ErrorKind::State, message).hint(hint),
            ),
            Self::TooMany(wait) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests",
                UserError::new(ErrorKind::Policy, "there were too many requests")
                    .hint(format!("try again in {} s", wait.as_secs() + 1)),
            ),
        };
        match form {
            Form::Json => plain(status, form.media_type(), json::failure(&error)),
            Form::Page(_) | Form::Csv => {
                let page = Form::Page(form.depth());
                let text = html::failure(title, &error.message, &error.hints, form.depth());
                plain(status, page.media_type(), text)
            }
        }
    }
}
