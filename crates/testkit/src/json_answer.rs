//! A response in JSON. axum's own type needs the feature `raw_value` of serde_json, which would then be on in all
//! tests, and gives a certain key of a map a special meaning.

use axum::{
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

/// The body of a response.
pub struct Json<T>(pub T);

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).unwrap();
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}
