//! moto, an S3 server independent of that of `s3.rs`, as a second opinion on the protocol.
//!
//! It is not used for races: moto checks `If-None-Match` and writes in two steps on several threads, so now and then
//! two of 16 concurrent writers succeed.

use super::service::{Ports, Service, folder};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The region of secrets and parameters.
pub const REGION: &str = "eu-central-1";

/// The number of requests that are not checked: more than any test sends.
const UNCHECKED: &str = "100000000";

/// A running moto server.
pub struct Moto {
    service: Service,
    endpoint: String,
    ports: Ports,
}

impl Moto {
    /// Returns the server of this test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Moto> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a separate server.
    pub fn start() -> Self {
        let folder = folder("moto");
        let ports = Ports::claim();
        let mut command = Command::new(super::executable("moto", "moto_server"));
        // Signatures and policies are not checked before `check_requests`.
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", UNCHECKED);
        command.args(["-H", "127.0.0.1", "-p", &ports.nth(1).to_string()]);
        let mut service = Service::start("moto", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            service,
            endpoint: format!("http://127.0.0.1:{}", ports.nth(1)),
            ports,
        }
    }

    /// Returns the address, `http://127.0.0.1:PORT`. Any key pair is accepted.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Switches the check of signatures and policies on or off.
    pub async fn check_requests(&self, checks: bool) {
        let count = if checks { "0" } else { UNCHECKED };
        let url = format!("{}/moto-api/reset-auth", self.endpoint);
        let answer = reqwest::Client::new().post(url).body(count).send().await;
        answer.and_then(reqwest::Response::error_for_status).unwrap();
    }

    /// Calls a JSON service with all rights. `target` is `PREFIX.OPERATION`.
    pub async fn call(&self, service: &str, target: &str, body: serde_json::Value) -> serde_json::Value {
        let request = self
            .request(service)
            .header("x-amz-target", target)
            .header("content-type", "application/x-amz-json-1.1")
            .body(body.to_string());
        let text = Self::text(request).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{target}: {text}"))
    }

    /// Calls a service that takes forms, with all rights; returns its XML.
    pub async fn form(&self, service: &str, fields: &[(&str, &str)]) -> String {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request = self
            .request(service)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        Self::text(request).await
    }

    fn request(&self, service: &str) -> reqwest::RequestBuilder {
        let credential = format!("Credential=admin/20260101/{REGION}/{service}/aws4_request");
        let authorization = format!("AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=none");
        reqwest::Client::new()
            .post(&self.endpoint)
            .header("authorization", authorization)
    }

    async fn text(request: reqwest::RequestBuilder) -> String {
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{status}: {text}");
        text
    }

    /// Creates a bucket, and returns its name. `name` is lower case letters, digits and dashes.
    pub async fn bucket(&self, name: &str) -> String {
        let name = format!("{name}-{}", uuid::Uuid::new_v4().simple());
        let made = reqwest::Client::new()
            .put(format!("{}/{name}", self.endpoint))
            .send()
            .await;
        made.and_then(reqwest::Response::error_for_status)
            .expect("moto makes the bucket");
        name
    }
}
