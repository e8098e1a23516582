//! MinIO, an independent S3 server, for `make test-all` and the benches.

use super::s3::{S3, new_bucket};
use super::service::{Ports, Service, folder};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A running MinIO.
pub struct Minio {
    service: Service,
    endpoint: String,
    folder: PathBuf,
    ports: Ports,
}

impl Minio {
    /// The access key of the root user.
    pub const ACCESS_KEY: &str = S3::ACCESS_KEY;
    /// The secret key of the root user.
    pub const SECRET_KEY: &str = S3::SECRET_KEY;
    /// The region that the server reports.
    pub const REGION: &str = S3::REGION;

    /// Starts an empty server.
    pub fn start() -> Self {
        let folder = folder("minio");
        std::fs::create_dir(folder.join("data")).expect("a folder for the data");
        let ports = Ports::claim();
        let mut command = Command::new(super::executable("minio", "minio"));
        command
            .arg("server")
            .arg(folder.join("data"))
            .args(["--quiet", "--address", &format!("127.0.0.1:{}", ports.nth(1))])
            .args(["--console-address", &format!("127.0.0.1:{}", ports.nth(2))])
            .env("HOME", &folder)
            .env("MINIO_ROOT_USER", Self::ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", Self::SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off");
        let mut service = Service::start("minio", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            service,
            endpoint: format!("http://127.0.0.1:{}", ports.nth(1)),
            folder,
            ports,
        }
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates a bucket, and returns its name. `name` is lower case letters, digits and dashes.
    ///
    /// With one drive a bucket is a folder at the top of the data. `object_store` does not have S3's request for it.
    pub fn bucket(&self, name: &str) -> String {
        new_bucket(&self.folder, name)
    }
}
