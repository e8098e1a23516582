//! GitHub's published description of its API, and examples of its webhooks, from npm.

use super::{cache, installed};
use serde_json::Value;

/// Returns the OpenAPI description, reduced to the routes of `tests/parts/github/routes.txt` and without its prose.
pub fn openapi() -> Value {
    read("openapi.json")
}

/// Returns the example payloads of an event such as `pull_request`.
pub fn webhooks(event: &str) -> Vec<Value> {
    let all = read("webhooks.json");
    let events = all.as_array().expect("a list of events");
    let found = events
        .iter()
        .find(|one| one["name"] == event)
        .unwrap_or_else(|| panic!("GitHub has no {event}"));
    found["examples"].as_array().expect("a list of payloads").clone()
}

fn read(name: &str) -> Value {
    let path = installed("github", cache().join("github").join(name));
    let bytes = std::fs::read(path).expect("the file can be read");
    serde_json::from_slice(&bytes).expect("the file is JSON")
}
