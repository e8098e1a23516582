//! The OpenAPI description of the JSON API.

use std::sync::LazyLock;

use serde_json::Value;

/// Returns the description (OpenAPI 3.1).
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> =
        LazyLock::new(|| serde_json::from_str(include_str!("openapi.json")).expect("a test reads it"));
    &DOCUMENT
}
