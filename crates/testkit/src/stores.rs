//! The stores besides S3, which `scripts/parts install all` installs. Their tests are ignored, except by `make
//! test-all`. Each test starts its own server, which ends on drop.

use super::executable;
use super::service::{Ports, Service, folder};
use base64::Engine;
use object_store::azure::{MicrosoftAzure, MicrosoftAzureBuilder};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Azurite: Azure Blob Storage.
pub struct Azurite {
    service: Service,
    ports: Ports,
}

impl Azurite {
    /// The account that every Azurite has.
    pub const ACCOUNT: &str = "devstoreaccount1";
    /// The published key of the account.
    pub const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    /// Starts a server that keeps its blobs in memory.
    pub fn start() -> Self {
        let (folder, ports) = (folder("azurite"), Ports::claim());
        let mut command = Command::new(executable("azurite", "azurite-blob"));
        command
            .args([
                "--inMemoryPersistence",
                "--silent",
                "--skipApiVersionCheck",
                "--disableTelemetry",
            ])
            .args(["--blobPort", &ports.nth(1).to_string()])
            .current_dir(&folder);
        let mut service = Service::start("azurite", &command, &folder);
        service.wait_for_port(ports.nth(1), LIMIT);
        Self { service, ports }
    }

    /// Returns the address, `http://127.0.0.1:PORT/ACCOUNT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.ports.nth(1), Self::ACCOUNT)
    }

    /// Creates a container, and returns its name. `object_store` has no request for it.
    pub async fn container(&self, name: &str) -> String {
        let name = format!("{name}-{}", uuid::Uuid::new_v4().simple());
        let (date, version) = (
            jiff::Timestamp::now()
                .strftime("%a, %d %b %Y %H:%M:%S GMT")
                .to_string(),
            "2021-08-06",
        );
        let account = Self::ACCOUNT;
        let signed = format!(
            "PUT{}x-ms-date:{date}\nx-ms-version:{version}\n/{account}/{account}/{name}\nrestype:container",
            "\n".repeat(12)
        );
        let base64 = base64::engine::general_purpose::STANDARD;
        let key = base64.decode(Self::KEY).expect("the published key is base64");
        let signature = base64.encode(hmac_sha256(&key, signed.as_bytes()));
        let made = reqwest::Client::new()
            .put(format!("{}/{name}?restype=container", self.endpoint()))
            .header("x-ms-date", date)
            .header("x-ms-version", version)
            .header("content-length", "0")
            .header("authorization", format!("SharedKey {account}:{signature}"))
            .send()
            .await;
        made.and_then(reqwest::Response::error_for_status)
            .expect("Azurite makes the container");
        name
    }

    /// Returns a client of `container`.
    pub fn client(&self, container: &str) -> MicrosoftAzure {
        MicrosoftAzureBuilder::new()
            .with_account(Self::ACCOUNT)
            .with_access_key(Self::KEY)
            .with_endpoint(self.endpoint())
            .with_allow_http(true)
            .with_container_name(container)
            .build()
            .expect("a valid configuration")
    }
}

/// Computes HMAC-SHA256 (RFC 2104), for a key of at most 64 bytes.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let padded = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        Sha256::new().chain_update(block)
    };
    let inner = padded(0x36).chain_update(message).finalize();
    padded(0x5c).chain_update(inner).finalize().into()
}

/// A SQL server with an empty database `konverge`.
pub struct Sql {
    service: Service,
    ports: Ports,
    url: String,
}

impl Sql {
    /// Starts PostgreSQL. It refuses to run as root, and then runs as the user that its package created.
    pub fn postgres() -> Self {
        let (folder, ports) = (folder("postgres"), Ports::claim());
        let data = folder.join("data");
        let program = |name: &str| {
            // Resolve links: the cache may be in a home that the other user cannot enter.
            let program = executable("postgresql", name)
                .canonicalize()
                .expect("the link leads to a program");
            let root = nix::unistd::Uid::effective().is_root();
            let user = root
                .then(|| nix::unistd::User::from_name("postgres").ok().flatten())
                .flatten();
            let Some(user) = user else {
                return Command::new(program);
            };
            nix::unistd::chown(&folder, Some(user.uid), Some(user.gid))
                .expect("root may give the folder away");
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)]);
            // Set the signal again, because a change of user clears it.
            command
                .args(["--clear-groups", "--pdeathsig", "KILL", "--"])
                .arg(program)
                .current_dir(&folder);
            command
        };
        let mut initdb = program("initdb");
        initdb
            .args([
                "--username=konverge",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--pgdata",
            ])
            .arg(&data);
        finish(initdb);
        let mut server = program("postgres");
        server.arg("-D").arg(&data).args([
            "-h",
            "127.0.0.1",
            "-p",
            &ports.nth(1).to_string(),
            "-F",
            "-k",
            "",
        ]);
        // Keep shared memory in the server's folder, so that it does not outlive a killed server as named memory would.
        server.args(["-c", "dynamic_shared_memory_type=mmap"]);
        let mut service = Service::start("postgres", &server, &folder);
        service.wait_for_words("ready to accept connections", LIMIT);
        let url = format!("postgres://konverge@127.0.0.1:{}/postgres", ports.nth(1));
        Self { service, ports, url }
    }

    /// Starts MariaDB, which lets anyone log in as root.
    pub fn mariadb() -> Self {
        let (folder, ports) = (folder("mariadb"), Ports::claim());
        let data = folder.join("data");
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective())
            .ok()
            .flatten();
        let user = format!(
            "--user={}",
            user.map_or_else(|| "root".to_owned(), |user| user.name)
        );
        let mut install = Command::new(
            executable("mariadb", "mariadb-install-db")
                .canonicalize()
                .expect("a program"),
        );
        install.args([
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
            &user,
        ]);
        install.arg(format!("--datadir={}", data.display()));
        finish(install);
        std::fs::create_dir(data.join("konverge")).expect("an empty database is a folder");
        let mut server = Command::new(
            executable("mariadb", "mariadbd")
                .canonicalize()
                .expect("a program"),
        );
        server
            .args([
                "--no-defaults",
                "--skip-grant-tables",
                "--bind-address=127.0.0.1",
                &user,
            ])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", folder.join("socket").display()))
            .arg(format!("--port={}", ports.nth(1)));
        let mut service = Service::start("mariadbd", &server, &folder);
        service.wait_for_port(ports.nth(1), LIMIT);
        let url = format!("mysql://root@127.0.0.1:{}/konverge", ports.nth(1));
        Self { service, ports, url }
    }

    /// Returns the address for clients.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn finish(mut command: Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
}

/// An OCI registry.
pub struct Registry {
    service: Service,
    ports: Ports,
}

impl Registry {
    /// Starts an empty registry.
    pub fn start() -> Self {
        let (folder, ports) = (folder("registry"), Ports::claim());
        let configuration = json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
            "http": {"addr": format!("127.0.0.1:{}", ports.nth(1))},
        });
        let file = folder.join("registry.yml");
        std::fs::write(&file, configuration.to_string()).expect("the configuration can be written");
        let mut command = Command::new(executable("registry", "registry"));
        command
            .arg("serve")
            .arg(&file)
            .env("OTEL_TRACES_EXPORTER", "none");
        let mut service = Service::start("registry", &command, &folder);
        service.wait_for_port(ports.nth(1), LIMIT);
        Self { service, ports }
    }

    /// Returns the host, `127.0.0.1:PORT`. It speaks plain HTTP.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.ports.nth(1))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.service.pid()
    }
}
