//! An S3 server that builds quickly: Versity's gateway, which stores each object as a file, with its accounts.

use super::identities::write_identities;
use super::service::{Ports, Service, folder};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A running gateway.
pub struct S3 {
    gateway: Service,
    accounts: Service,
    folder: PathBuf,
    ports: Ports,
    scheme: &'static str,
    endpoint: String,
}

impl S3 {
    /// The access key of the root user.
    pub const ACCESS_KEY: &str = "konverge-test";
    /// The secret key of the root user.
    pub const SECRET_KEY: &str = "konverge-test-secret";
    /// The region that the server reports.
    pub const REGION: &str = "us-east-1";

    /// Returns the server of this test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<S3> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a separate server.
    pub fn start() -> Self {
        Self::in_folder(folder("s3"), "http")
    }

    /// Starts a server that speaks only TLS. Its certificate is signed by an unknown authority: `ca.crt` in the folder.
    pub fn start_with_tls() -> (Self, PathBuf) {
        let folder = folder("s3-tls");
        write_identities(&folder);
        let authority = folder.join("ca.crt");
        (Self::in_folder(folder, "https"), authority)
    }

    fn in_folder(folder: PathBuf, scheme: &'static str) -> Self {
        for name in ["data", "metadata", "accounts"] {
            std::fs::create_dir(folder.join(name)).expect("a new folder");
        }
        let ports = Ports::claim();
        // Start the account service first: the gateway reads it at its start, and then only every few seconds.
        let accounts = Self::serve_accounts(&folder, &ports);
        Self {
            gateway: Self::serve(&folder, &ports, scheme),
            accounts,
            endpoint: format!("{scheme}://127.0.0.1:{}", ports.nth(1)),
            scheme,
            folder,
            ports,
        }
    }

    fn command(port: u16) -> Command {
        let mut command = Command::new(super::executable("versitygw", "versitygw"));
        command
            .args(["--access", Self::ACCESS_KEY, "--secret", Self::SECRET_KEY])
            .args(["--region", Self::REGION, "--quiet"])
            .args(["--port", &format!("127.0.0.1:{port}")]);
        command
    }

    fn serve(folder: &Path, ports: &Ports, scheme: &str) -> Service {
        let mut command = Self::command(ports.nth(1));
        if scheme == "https" {
            command.arg("--cert").arg(folder.join("server.crt"));
            command.arg("--key").arg(folder.join("server.key"));
        }
        command
            .arg("--iam-standalone-endpoint")
            .arg(folder.join("accounts.sock"))
            .arg("posix")
            // Some file systems have no extended attributes, so the metadata goes into files.
            .arg("--sidecar")
            .arg(folder.join("metadata"))
            .arg(folder.join("data"));
        let mut gateway = Service::start("versitygw", &command, folder);
        gateway.wait_for_port(ports.nth(1), LIMIT);
        gateway
    }

    fn serve_accounts(folder: &Path, ports: &Ports) -> Service {
        let socket = folder.join("accounts.sock");
        let mut command = Self::command(ports.nth(2));
        command.arg("iam").arg("--dir").arg(folder.join("accounts"));
        command.arg("--private-ports").arg(&socket);
        let mut accounts = Service::start("versitygw-accounts", &command, folder);
        accounts.wait_until(LIMIT, || UnixStream::connect(&socket).ok());
        accounts
    }

    /// Kills the server, as a power cut would. Written data stays.
    pub fn kill(&mut self) {
        self.gateway.kill();
    }

    /// Starts the server again at the same address with the same data.
    pub fn start_again(&mut self) {
        self.gateway = Self::serve(&self.folder, &self.ports, self.scheme);
    }

    /// Returns the credentials of a new user whose rights are only this policy.
    pub async fn credentials(&self, policy: &serde_json::Value) -> [(&'static str, String); 2] {
        let user = format!("user-{}", uuid::Uuid::new_v4().simple());
        let named = [("UserName", user.as_str())];
        self.ask_accounts("CreateUser", &named).await;
        let policy = policy.to_string();
        let attached = [named[0], ("PolicyName", "tested"), ("PolicyDocument", &policy)];
        self.ask_accounts("PutUserPolicy", &attached).await;
        let key = self.ask_accounts("CreateAccessKey", &named).await;
        let element = |name: &str| {
            let (_, rest) = key.split_once(&format!("<{name}>")).expect(name);
            rest.split('<').next().expect("a value").to_owned()
        };
        [
            ("AWS_ACCESS_KEY_ID", element("AccessKeyId")),
            ("AWS_SECRET_ACCESS_KEY", element("SecretAccessKey")),
        ]
    }

    /// Sends a request to IAM as the root user.
    async fn ask_accounts(&self, action: &str, fields: &[(&str, &str)]) -> String {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("Action", action), ("Version", "2010-05-08")])
            .extend_pairs(fields)
            .finish();
        let url = format!("http://127.0.0.1:{}/", self.ports.nth(2));
        let mut request = http::Request::post(&url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.clone().into())
            .expect("a request");
        let root = AwsCredential {
            key_id: Self::ACCESS_KEY.to_owned(),
            secret_key: Self::SECRET_KEY.to_owned(),
            token: None,
        };
        AwsAuthorizer::new(&root, "iam", Self::REGION)
            .try_authorize(&mut request, None)
            .expect("it can be signed");
        let sent = reqwest::Client::new()
            .post(&url)
            .headers(request.headers().clone())
            .body(form)
            .send()
            .await;
        let response = sent.expect("IAM answers");
        let status = response.status();
        let text = response.text().await.expect("text");
        assert!(status.is_success(), "{action}: {status}: {text}");
        text
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates a bucket, and returns its name. `name` is lower case letters, digits and dashes.
    ///
    /// A bucket is a folder at the top of the data. `object_store` does not have S3's request for it.
    pub fn bucket(&self, name: &str) -> String {
        new_bucket(&self.folder, name)
    }

    /// Returns a client of `bucket` that does not use Konverge's code.
    pub fn client(&self, bucket: &str) -> AmazonS3 {
        client(&self.endpoint, bucket)
    }
}

/// Returns a client of a bucket at an S3 endpoint.
pub fn client(endpoint: &str, bucket: &str) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_access_key_id(S3::ACCESS_KEY)
        .with_secret_access_key(S3::SECRET_KEY)
        .with_region(S3::REGION)
        .with_bucket_name(bucket)
        .build()
        .expect("a valid configuration")
}

/// Creates a bucket, which is a folder at the top of the server's data.
pub(super) fn new_bucket(folder: &Path, name: &str) -> String {
    let name = format!("{name}-{}", uuid::Uuid::new_v4().simple());
    std::fs::create_dir(folder.join("data").join(&name)).expect("a new folder");
    name
}
