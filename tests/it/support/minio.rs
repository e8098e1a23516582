//! MinIO: a real S3 server.

use super::service::{Ports, Service, folder};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// A running MinIO.
pub struct Minio {
    service: Service,
    endpoint: String,
    data: PathBuf,
    ports: Ports,
}

impl Minio {
    /// The access key of the root user.
    pub const ACCESS_KEY: &str = "konverge-test";
    /// Its secret key.
    pub const SECRET_KEY: &str = "konverge-test-secret";
    /// The region it says it is in.
    pub const REGION: &str = "us-east-1";

    /// The one of this test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Minio> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// One of one's own.
    pub fn start() -> Self {
        let folder = folder("minio");
        let data = folder.join("data");
        std::fs::create_dir(&data).expect("a folder for the data");
        let ports = Ports::claim();
        let mut command = Command::new(super::executable("minio", "minio"));
        command
            .arg("server")
            .arg(&data)
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
            data,
            ports,
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Makes a bucket and gives its name; `name` is lower case letters, digits and dashes.
    ///
    /// With one drive a bucket is a folder at the top of the data; S3's own call for it is not in `object_store`.
    pub fn bucket(&self, name: &str) -> String {
        let name = format!("{name}-{}", uuid::Uuid::new_v4().simple());
        std::fs::create_dir(self.data.join(&name)).expect("a new folder");
        name
    }

    /// A client of `bucket`, for looking at it past the project's own code.
    pub fn client(&self, bucket: &str) -> AmazonS3 {
        client(&self.endpoint, bucket)
    }
}

/// A client of a bucket behind an S3 endpoint of ours.
pub fn client(endpoint: &str, bucket: &str) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_access_key_id(Minio::ACCESS_KEY)
        .with_secret_access_key(Minio::SECRET_KEY)
        .with_region(Minio::REGION)
        .with_bucket_name(bucket)
        .build()
        .expect("a valid configuration")
}
