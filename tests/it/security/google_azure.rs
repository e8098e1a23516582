//! Secrets of Google Secret Manager and of Azure Key Vault, on a fake that answers as their documentation says: a
//! preview reads versions, an apply reads values, a version that moved is a rotation.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    json_answer::Json,
    objects::Objects,
    process::Outcome,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
};

/// In every value.
const CANARY: &str = "c4nary-Gz8a!Qw";
const TOKEN: &str = "ya29.the-token-of-the-job";

/// The versions of each secret, the oldest first, and what was asked.
#[derive(Default)]
struct World {
    secrets: BTreeMap<String, Vec<String>>,
    requests: Vec<String>,
    /// Values are not given.
    denies_values: bool,
    damages: bool,
    address: String,
}

/// Both services on one port of this machine.
#[derive(Clone)]
pub(super) struct FakeClouds(Arc<Mutex<World>>);

impl FakeClouds {
    pub async fn start() -> Self {
        let clouds = Self(Arc::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        clouds.world().address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(clouds.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        clouds
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub fn address(&self) -> String {
        self.world().address.clone()
    }

    pub fn put(&self, name: &str, value: &str) {
        self.world()
            .secrets
            .entry(name.to_owned())
            .or_default()
            .push(value.to_owned());
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.world().requests)
    }
}

async fn answer(State(clouds): State<FakeClouds>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let mut world = clouds.world();
    let path = uri.path().to_owned();
    let is_login = path.ends_with("/oauth2/v2.0/token") || path.ends_with("/service-accounts/default/token");
    if is_login {
        return Json(json!({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}))
            .into_response();
    }
    world.requests.push(path.clone());
    let refused =
        |status: StatusCode, why: &str| (status, Json(json!({"error": {"message": why}}))).into_response();
    let bearer = headers.get("authorization").map(|value| value.to_str().unwrap());
    if method != Method::GET || bearer != Some(format!("Bearer {TOKEN}").as_str()) {
        let mut answer = refused(StatusCode::UNAUTHORIZED, "no token");
        let challenge = r#"Bearer authorization="https://login.microsoftonline.com/tenant", resource="https://vault.azure.net""#;
        answer
            .headers_mut()
            .insert("www-authenticate", challenge.parse().unwrap());
        return answer;
    }
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    match parts[..] {
        ["v1", "projects", project, "secrets", name, "versions", last] => {
            let (version, is_access) = match last.split_once(':') {
                Some((version, "access")) => (version, true),
                _ => (last, false),
            };
            let versions = world
                .secrets
                .get(name)
                .filter(|_| project == "acme")
                .cloned()
                .unwrap_or_default();
            let number = if version == "latest" {
                versions.len()
            } else {
                version.parse().unwrap_or(0)
            };
            let Some(value) = number.checked_sub(1).and_then(|at| versions.get(at)) else {
                return refused(StatusCode::NOT_FOUND, "Secret Version not found");
            };
            let full = format!("projects/123456/secrets/{name}/versions/{number}");
            if !is_access {
                return Json(json!({"name": full, "state": "ENABLED", "etag": "\"1\""})).into_response();
            }
            if world.denies_values {
                return refused(
                    StatusCode::FORBIDDEN,
                    "Permission 'secretmanager.versions.access' denied",
                );
            }
            let data = base64::engine::general_purpose::STANDARD.encode(value);
            let sum = crc(value.as_bytes()) + u32::from(world.damages);
            Json(json!({"name": full, "payload": {"data": data, "dataCrc32c": sum.to_string()}}))
                .into_response()
        }
        ["secrets", name, "versions"] => {
            if !uri.query().unwrap_or_default().contains("api-version=7.4") {
                return refused(StatusCode::BAD_REQUEST, "api-version");
            }
            let Some(versions) = world.secrets.get(name) else {
                return refused(StatusCode::NOT_FOUND, "SecretNotFound");
            };
            // One version a page, in no order.
            let page = uri
                .query()
                .and_then(|query| query.split("page=").nth(1))
                .map_or(0, |at| at.parse().unwrap());
            let (at, is_last) = ((page + 1) % versions.len(), page + 1 == versions.len());
            let id = format!("{}/secrets/{name}/{:032x}", world.address, at + 1);
            let item = json!({"id": id, "attributes": {"enabled": true, "created": 1_700_000_000 + at}});
            let next = format!(
                "{}/secrets/{name}/versions?api-version=7.4&page={}",
                match headers.get("x-forwarded-proto") {
                    Some(_) => world.address.replace("http://", "https://"),
                    None => world.address.clone(),
                },
                page + 1
            );
            let next = if is_last { Value::Null } else { json!(next) };
            Json(json!({"value": [item], "nextLink": next})).into_response()
        }
        ["secrets", name, version] => {
            if world.denies_values {
                return refused(StatusCode::FORBIDDEN, "does not have secrets get permission");
            }
            let versions = world.secrets.get(name).cloned().unwrap_or_default();
            let number = match version {
                "" => versions.len(),
                version => usize::from_str_radix(version, 16).unwrap_or(0),
            };
            let Some(value) = number.checked_sub(1).and_then(|at| versions.get(at)) else {
                return refused(StatusCode::NOT_FOUND, "SecretNotFound");
            };
            let id = format!("{}/secrets/{name}/{number:032x}", world.address);
            Json(json!({"value": value, "id": id, "attributes": {"enabled": true}})).into_response()
        }
        _ => refused(StatusCode::NOT_FOUND, "no such path"),
    }
}

/// CRC-32C, by a table of its own.
fn crc(bytes: &[u8]) -> u32 {
    let step = |byte: u32| {
        (0..8).fold(byte, |sum, _| {
            if sum & 1 == 1 {
                (sum >> 1) ^ 0x82F6_3B78
            } else {
                sum >> 1
            }
        })
    };
    let table: Vec<u32> = (0..256).map(step).collect();
    !bytes.iter().fold(!0, |sum, byte| {
        table[((sum ^ u32::from(*byte)) & 255) as usize] ^ (sum >> 8)
    })
}

struct Clouded {
    shop: Shop,
    clouds: FakeClouds,
    cluster: &'static Cluster,
    pay: Value,
}

impl Clouded {
    async fn new(subject: &str, kind: &str, path: &str, reference: &str) -> Self {
        let (cluster, clouds) = (Cluster::shared(), FakeClouds::start().await);
        let namespace = cluster.namespace(subject).await;
        let address = clouds.world().address.clone();
        let config = format!(
            "clusters: {{test: {{}}}}\nsecrets: {{stores: {{cloud: {{kind: {kind}, address: '{address}', allow: [{{stacks: 'apps/shop/*', paths: '{path}'}}]}}}}}}\n"
        );
        let metadata = json!({"name": "pay", "namespace": namespace});
        let pay = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": reference}});
        let shop = Shop::new(&config, &[("KUBECONFIG", cluster.kubeconfig().as_path())]);
        shop.wants("prod", &[resource(&pay)]);
        Self {
            shop,
            clouds,
            cluster,
            pay,
        }
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let address = self.clouds.world().address.clone();
        let run = self.shop.konverge(arguments).env("KONVERGE_LOG", "trace");
        run.env("AZURE_CLIENT_ID", "app")
            .env("AZURE_TENANT_ID", "tenant")
            .env("AZURE_CLIENT_SECRET", "the-secret-of-the-app")
            .env("AZURE_AUTHORITY_HOST", &address)
            .env("GCE_METADATA_HOST", address.trim_start_matches("http://"))
            .run()
    }

    fn preview(&self) -> Outcome {
        self.run(&["preview", "--all", "--live", "required", "--output", "json"])
    }

    fn apply(&self) -> Outcome {
        self.run(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
    }

    /// The mark of the value in a preview.
    fn mark(&self) -> Value {
        let outcome = self.preview().expect(0);
        self.holds_no_value(&outcome);
        let changes = outcome.json()["stacks"][0]["resources"][0]["changes"][0].take();
        let whole = changes["to"]["data"]["password"].clone();
        if whole.is_null() {
            changes["to"].clone()
        } else {
            whole
        }
    }

    async fn password(&self) -> Option<String> {
        let live = Objects::of(self.cluster).await.get(&self.pay).await?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(live["data"]["password"].as_str()?)
            .unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    fn holds_no_value(&self, outcome: &Outcome) {
        let state = self.shop.monorepo.path().join(".git/test-state");
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        for text in [&outcome.stdout, &outcome.stderr, &state] {
            assert!(!text.contains(CANARY) && !text.contains(TOKEN), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_reads_versions_and_an_apply_values() {
    for (subject, kind, path, word, name, versions) in [
        (
            "gcp-secrets",
            "gcp",
            "acme/*",
            "gcpsecrets",
            "acme/pay",
            ["1", "2"].map(str::to_owned),
        ),
        (
            "azure-secrets",
            "azure",
            "*",
            "azurekeyvault",
            "pay",
            [1, 2].map(|number| format!("{number:032x}")),
        ),
    ] {
        let clouded = Clouded::new(subject, kind, path, &format!("ref+{word}://{name}")).await;
        clouded.clouds.put("pay", &format!("{CANARY}-1"));
        let mark = |version: &str| json!({"$secret": {"ref": format!("cloud:{name}"), "version": version}});
        clouded.clouds.world().denies_values = true;
        assert_eq!(clouded.mark(), mark(&versions[0]), "{kind}");
        let asked = clouded.clouds.requests();
        assert_eq!(asked.len(), 1, "one question: {asked:?}");
        let denied = clouded.apply().expect(1);
        assert!(
            denied.stdout.contains("was denied (HTTP 403)"),
            "{}",
            denied.stdout
        );
        assert_eq!(clouded.password().await, None, "nothing is touched");

        clouded.clouds.world().denies_values = false;
        clouded.holds_no_value(&clouded.apply().expect(0));
        assert_eq!(clouded.password().await, Some(format!("{CANARY}-1")));
        let unchanged = clouded.preview().expect(0).json();
        assert_eq!(unchanged["stacks"][0]["resources"], json!([]), "{unchanged}");
        clouded.clouds.put("pay", &format!("{CANARY}-2"));
        let moved = clouded.preview().expect(0);
        assert!(
            moved.stdout.contains(r#""origin":"rotation""#),
            "{}",
            moved.stdout
        );
        assert_eq!(clouded.mark(), mark(&versions[1]), "{kind}");
        clouded.holds_no_value(&clouded.apply().expect(0));
        assert_eq!(clouded.password().await, Some(format!("{CANARY}-2")));

        // A version that the author asks for.
        let mut fixed = clouded.pay.clone();
        fixed["stringData"]["password"] = json!(format!("ref+{word}://{name}?version={}", versions[0]));
        clouded.shop.wants("prod", &[resource(&fixed)]);
        clouded.apply().expect(0);
        assert_eq!(clouded.password().await, Some(format!("{CANARY}-1")));

        // Another path, another way to write one, and a secret that is not there.
        for (reference, why) in [
            (format!("ref+{word}://other/elsewhere/pay"), "other/elsewhere/pay"),
            (format!("ref+{word}://{name}?version=latest/../1"), "version"),
            (
                format!("ref+{word}://{}", name.replace("pay", "none")),
                "is not there (HTTP 404)",
            ),
        ] {
            fixed["stringData"]["password"] = json!(reference);
            clouded.shop.wants("prod", &[resource(&fixed)]);
            let refused = clouded.apply().expect(1);
            assert!(refused.stdout.contains(why), "{reference}: {}", refused.stdout);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_value_is_not_written() {
    let clouded = Clouded::new("gcp-damaged", "gcp", "acme/*", "ref+gcpsecrets://acme/pay").await;
    clouded.clouds.put("pay", CANARY);
    clouded.clouds.world().damages = true;
    let refused = clouded.apply().expect(1);
    assert!(
        refused.stdout.contains("its checksum does not match"),
        "{}",
        refused.stdout
    );
    clouded.holds_no_value(&refused);
    assert_eq!(clouded.password().await, None);
}

/// The clients that Google and Azure publish find on the fake what Konverge finds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn the_published_clients_read_the_same() {
    let clouds = FakeClouds::start().await;
    clouds.put("pay", &format!("{CANARY}-1"));
    clouds.put("pay", &format!("{CANARY}-2"));
    let program = include_str!("../support/google_azure_sdks.py");
    let host = clouds.world().address.trim_start_matches("http://").to_owned();
    let arguments = ["-c".to_owned(), program.to_owned(), host, TOKEN.to_owned()];
    let said = crate::support::process::Konverge::of(&crate::support::cloud_sdks(), arguments)
        .run()
        .expect(0)
        .json();
    let versions = |kind: &str| said[kind]["versions"].as_array().unwrap().len();
    assert_eq!(said["google"]["newest"], format!("{CANARY}-2"), "{said}");
    assert_eq!(said["google"]["first"], format!("{CANARY}-1"), "{said}");
    assert_eq!(
        said["google"]["version"], "projects/123456/secrets/pay/versions/2",
        "{said}"
    );
    assert_eq!(said["google"]["missing"], "NotFound", "{said}");
    assert_eq!(said["azure"]["newest"], format!("{CANARY}-2"), "{said}");
    assert_eq!(said["azure"]["first"], format!("{CANARY}-1"), "{said}");
    assert_eq!(said["azure"]["missing"], "ResourceNotFoundError", "{said}");
    assert_eq!(versions("azure"), 2, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn the_published_client_wraps_the_same() {
    use crate::support::key_clouds::{AZURE_KEY, KeyClouds, TOKEN};
    let clouds = KeyClouds::start().await;
    let program = include_str!("../support/azure_keys_sdk.py");
    let host = clouds.address().trim_start_matches("http://").to_owned();
    let arguments = ["-c", program, &host, TOKEN, AZURE_KEY].map(str::to_owned);
    let said = crate::support::process::Konverge::of(&crate::support::cloud_sdks(), arguments)
        .run()
        .expect(0)
        .json();
    let expected = json!({"opened": true, "version": true, "too long": 400, "other": 400});
    assert_eq!(said, expected);
}
