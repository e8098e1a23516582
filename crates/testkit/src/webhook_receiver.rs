//! A fake receiver of webhooks.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::HeaderMap, routing::post};

/// The received requests: headers and body.
pub type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Starts a receiver that responds with these statuses, then with 200.
pub async fn receiver(statuses: Vec<u16>) -> (String, Seen) {
    let seen: Seen = Arc::default();
    let state = (seen.clone(), Arc::new(Mutex::new(statuses)));
    type Shared = (Seen, Arc<Mutex<Vec<u16>>>);
    let hook = |State((seen, statuses)): State<Shared>, headers: HeaderMap, body: String| async move {
        seen.lock().unwrap().push((headers, body));
        let mut statuses = statuses.lock().unwrap();
        let status = if statuses.is_empty() {
            200
        } else {
            statuses.remove(0)
        };
        (
            axum::http::StatusCode::from_u16(status).unwrap(),
            [("retry-after", "0")],
        )
    };
    let router = Router::new().route("/hook", post(hook)).with_state(state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}

/// Returns the topic of a webhook's document.
pub fn topic(body: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    document["topic"].as_str().unwrap().to_owned()
}
