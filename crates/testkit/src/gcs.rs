//! fake-gcs-server: Google Cloud Storage, installed by `scripts/parts install all`.
//!
//! fake-gcs-server accepts uploads only in the JSON API, but `object_store` writes in the XML API. So a small proxy
//! converts such a `PUT` with its precondition into the equivalent JSON request, and forwards all other requests
//! unchanged.

use super::executable;
use super::service::{Ports, Service, folder};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder};
use serde_json::json;
use std::process::Command;
use std::time::Duration;

/// A running server with its proxy.
pub struct Gcs {
    service: Service,
    ports: Ports,
}

impl Gcs {
    /// Starts a server that keeps its objects in memory.
    pub fn start() -> Self {
        let (folder, ports) = (folder("gcs"), Ports::claim());
        let (front, behind) = (ports.nth(1), ports.nth(2));
        let mut command = Command::new(executable("fake-gcs", "fake-gcs-server"));
        command
            .args(["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"])
            .args([
                "-port",
                &behind.to_string(),
                "-public-host",
                &format!("127.0.0.1:{behind}"),
            ]);
        let mut service = Service::start("fake-gcs-server", &command, &folder);
        service.wait_for_port(behind, Duration::from_secs(60));
        std::thread::spawn(move || serve_front(front, behind));
        service.wait_for_port(front, Duration::from_secs(60));
        Self { service, ports }
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.nth(1))
    }

    /// Returns the service account key that directs a client to this server.
    pub fn service_account(&self) -> String {
        json!({
            "gcs_base_url": self.endpoint(), "disable_oauth": true,
            "client_email": "", "private_key": "", "private_key_id": "",
        })
        .to_string()
    }

    /// Creates a bucket, and returns its name.
    pub async fn bucket(&self, name: &str) -> String {
        let name = format!("{name}-{}", uuid::Uuid::new_v4().simple());
        let url = format!("{}/storage/v1/b?project=test", self.endpoint());
        let made = reqwest::Client::new()
            .post(url)
            .json(&json!({"name": name}))
            .send()
            .await;
        made.and_then(reqwest::Response::error_for_status)
            .expect("the server makes the bucket");
        name
    }

    /// Returns a client of `bucket`.
    pub fn client(&self, bucket: &str) -> GoogleCloudStorage {
        GoogleCloudStorageBuilder::new()
            .with_service_account_key(self.service_account())
            .with_bucket_name(bucket)
            .build()
            .expect("a valid configuration")
    }
}

/// What the proxy needs to forward a request.
#[derive(Clone)]
struct Behind {
    client: reqwest::Client,
    port: u16,
}

/// Serves for the lifetime of the process, on a thread of its own: the runtimes of tests end earlier.
fn serve_front(front: u16, behind: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", front))
            .await
            .expect("the port is claimed");
        let state = Behind {
            client: reqwest::Client::new(),
            port: behind,
        };
        let router = axum::Router::new()
            .fallback(pass_on)
            .with_state(state)
            .layer(axum::extract::DefaultBodyLimit::disable());
        axum::serve(listener, router).await.expect("it serves");
    });
}

async fn pass_on(
    State(behind): State<Behind>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    headers.remove("host");
    let origin = format!("http://127.0.0.1:{}", behind.port);
    let is_upload = method == Method::PUT;
    let request = if is_upload {
        let (bucket, name) = uri
            .path()
            .trim_start_matches('/')
            .split_once('/')
            .expect("/BUCKET/NAME");
        let mut url = format!("{origin}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
        if let Some(generation) = headers.remove("x-goog-if-generation-match") {
            url += &format!("&ifGenerationMatch={}", generation.to_str().expect("a number"));
        }
        behind.client.post(url)
    } else {
        behind.client.request(method, format!("{origin}{uri}"))
    };
    let Ok(answer) = request.headers(headers).body(body).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    let body = answer.bytes().await.unwrap_or_default();
    headers.remove("transfer-encoding");
    headers.remove("content-length");
    // The XML API returns in headers what the JSON API returns in its body.
    if is_upload && let Ok(object) = serde_json::from_slice::<serde_json::Value>(&body) {
        for (header, field) in [("x-goog-generation", "generation"), ("etag", "etag")] {
            let value = object[field].as_str().and_then(|value| value.parse().ok());
            value.and_then(|value| headers.insert(header, value));
        }
    }
    (status, headers, body).into_response()
}
