//! MinIO: a real S3 server.

use super::identities::write_identities;
use super::service::{Ports, Service, folder};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
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
        Self::in_folder(folder("minio"))
    }

    /// One that speaks TLS alone; its certificate is signed by an authority that nobody knows: `ca.crt` in the folder.
    pub fn start_with_tls() -> (Self, PathBuf) {
        let folder = folder("minio-tls");
        write_identities(&folder);
        let certificates = folder.join("certs");
        std::fs::create_dir(&certificates).expect("a folder for the certificates");
        for (from, to) in [("server.crt", "public.crt"), ("server.key", "private.key")] {
            std::fs::copy(folder.join(from), certificates.join(to)).expect("a copy");
        }
        let authority = folder.join("ca.crt");
        (Self::in_folder(folder), authority)
    }

    fn in_folder(folder: PathBuf) -> Self {
        std::fs::create_dir(folder.join("data")).expect("a folder for the data");
        let ports = Ports::claim();
        let service = Self::serve(&folder, &ports);
        let scheme = if folder.join("certs/public.crt").exists() {
            "https"
        } else {
            "http"
        };
        Self {
            service,
            endpoint: format!("{scheme}://127.0.0.1:{}", ports.nth(1)),
            folder,
            ports,
        }
    }

    fn serve(folder: &Path, ports: &Ports) -> Service {
        let mut command = Command::new(super::executable("minio", "minio"));
        command
            .arg("server")
            .arg(folder.join("data"))
            .args(["--quiet", "--address", &format!("127.0.0.1:{}", ports.nth(1))])
            .args(["--console-address", &format!("127.0.0.1:{}", ports.nth(2))])
            .arg("--certs-dir")
            .arg(folder.join("certs"))
            .env("HOME", folder)
            .env("MINIO_ROOT_USER", Self::ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", Self::SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off");
        let mut service = Service::start("minio", &command, folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        service
    }

    /// Ends it as a power cut would; what was written stays.
    pub fn kill(&mut self) {
        self.service.kill();
    }

    /// Starts it again where it was, with what it had.
    pub fn start_again(&mut self) {
        self.service = Self::serve(&self.folder, &self.ports);
    }

    /// Credentials of an hour that may do no more than a policy allows: S3's `AssumeRole`.
    pub async fn credentials(&self, policy: &serde_json::Value) -> [(&'static str, String); 3] {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("Action", "AssumeRole"),
                ("Version", "2011-06-15"),
                ("DurationSeconds", "3600"),
                ("Policy", &policy.to_string()),
            ])
            .finish();
        let mut request = http::Request::post(&self.endpoint)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.clone().into())
            .expect("a request");
        let root = AwsCredential {
            key_id: Self::ACCESS_KEY.to_owned(),
            secret_key: Self::SECRET_KEY.to_owned(),
            token: None,
        };
        AwsAuthorizer::new(&root, "sts", Self::REGION)
            .try_authorize(&mut request, None)
            .expect("it can be signed");
        let answer = reqwest::Client::new()
            .post(&self.endpoint)
            .headers(request.headers().clone())
            .body(form)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .expect("MinIO gives credentials");
        let text = answer.text().await.expect("text");
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>")).expect(name);
            rest.split('<').next().expect("a value").to_owned()
        };
        [
            ("AWS_ACCESS_KEY_ID", element("AccessKeyId")),
            ("AWS_SECRET_ACCESS_KEY", element("SecretAccessKey")),
            ("AWS_SESSION_TOKEN", element("SessionToken")),
        ]
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
        std::fs::create_dir(self.folder.join("data").join(&name)).expect("a new folder");
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
