//! An answer in JSON. That of axum needs serde_json's `raw_value`, which would be on in all tests, and with which a key of
//! a map has a meaning.

use axum::{
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

/// The body of an answer.
pub struct Json<T>(pub T);

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).unwrap();
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}
