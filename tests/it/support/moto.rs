//! moto: an S3 of another make than MinIO, as a second opinion on the protocol.
//!
//! Not on races: its look at `If-None-Match` and its write are two steps on several threads, and of 16 writers at
//! once now and then two win.

use super::service::{Ports, Service, folder};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// A running moto server.
pub struct Moto {
    service: Service,
    endpoint: String,
    ports: Ports,
}

impl Moto {
    /// The one of this test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Moto> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// One of one's own.
    pub fn start() -> Self {
        let folder = folder("moto");
        let ports = Ports::claim();
        let mut command = Command::new(super::executable("moto", "moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &ports.nth(1).to_string()]);
        let mut service = Service::start("moto", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            service,
            endpoint: format!("http://127.0.0.1:{}", ports.nth(1)),
            ports,
        }
    }

    /// `http://127.0.0.1:PORT`. Any key pair is accepted.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Makes a bucket and gives its name; `name` is lower case letters, digits and dashes.
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
