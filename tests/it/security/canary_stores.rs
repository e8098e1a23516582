//! One store of every kind, each with a value of its own that is searched for afterwards.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::google_azure::FakeClouds;
use crate::support::{
    cluster::Cluster,
    git::Repository,
    key_clouds::{ALIBABA, KeyClouds},
    moto::{Moto, REGION},
    objects::Objects,
    tcp_relay::Relays,
    vault::FakeVault,
};

/// How a value begins, by the name of its store. SOPS itself encrypted the one of `files`.
const CANARIES: [(&str, &str); 9] = [
    ("job", "c4nary-Env!Jd"),
    ("vaulted", "c4nary-Vlt!Kq"),
    ("sm", "c4nary-Asm!Lw"),
    ("params", "c4nary-Ssm!Me"),
    ("google", "c4nary-Gcp!Nr"),
    ("keyvault", "c4nary-Azr!Pt"),
    ("ali", "c4nary-Ali!Qy"),
    ("files", "c4nary-Sp2s!Zk"),
    ("platform", "c4nary-K8s!Ru"),
];

/// What the runs log in to the stores with.
const LOGINS: [&str; 4] = ["hvs.", ALIBABA.1, "the-secret-of-the-app", "AGE-SECRET-KEY-1"];

fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sops");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The stores, each with one secret.
pub(super) struct CanaryStores {
    vault: FakeVault,
    moto: Moto,
    clouds: FakeClouds,
    ali: KeyClouds,
    namespace: String,
    token: String,
    /// In front of the servers, for kills at their requests.
    pub relays: Relays,
    /// The addresses of their relays: Vault, AWS, Google and Azure, Alibaba.
    addresses: [String; 4],
}

impl CanaryStores {
    /// With the first version of every value. A Secret of the namespace is the one of the store `platform`.
    pub async fn start(cluster: &Cluster, namespace: &str, monorepo: &Repository) -> Self {
        let vault = FakeVault::start().await;
        vault.allow("job", &["secret/"]);
        let (moto, clouds, ali) = (Moto::start(), FakeClouds::start().await, KeyClouds::start().await);
        let relays = Relays::default();
        let addresses = [
            relays.to(vault.address()).await,
            relays.to(moto.endpoint()).await,
            relays.to(&clouds.address()).await,
            relays.to(&ali.address()).await,
        ];
        let stores = Self {
            token: vault.token("job"),
            vault,
            moto,
            clouds,
            ali,
            namespace: namespace.to_owned(),
            relays,
            addresses,
        };
        Objects::of(cluster).await.create(&stores.source(1)).await;
        stores.put(1, monorepo).await;
        stores
    }

    /// The value of a store.
    fn value(name: &str, version: usize) -> String {
        let (_, canary) = CANARIES.iter().find(|(store, _)| *store == name).unwrap();
        format!("{canary}-{version}")
    }

    fn source(&self, version: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "source", "namespace": self.namespace},
            "stringData": {"password": Self::value("platform", version)},
        })
    }

    /// Writes a version of every value, but for those of the job and of the cluster.
    async fn put(&self, version: usize, monorepo: &Repository) {
        let value = |name| Self::value(name, version);
        self.vault.put("pay/db", json!({"password": value("vaulted")}));
        let (target, id) = match version {
            1 => ("secretsmanager.CreateSecret", "Name"),
            _ => ("secretsmanager.PutSecretValue", "SecretId"),
        };
        let token = uuid::Uuid::new_v4().to_string();
        let body = json!({id: "pay/db", "SecretString": value("sm"), "ClientRequestToken": token});
        self.moto.call("secretsmanager", target, body).await;
        let body = json!({"Name": "/pay/token", "Value": value("params"), "Type": "SecureString", "Overwrite": true});
        self.moto.call("ssm", "AmazonSSM.PutParameter", body).await;
        self.clouds.put("pay", &value("google"));
        self.clouds.put("pay-azure", &value("keyvault"));
        self.ali.put("pay", &value("ali"), "text");
        monorepo.write("secrets/db.yaml", fixture(&format!("db-{version}.yaml")));
    }

    /// Writes the second version of every value.
    pub async fn rotate(&self, cluster: &Cluster, monorepo: &Repository) {
        self.put(2, monorepo).await;
        let theirs = json!({"stringData": self.source(2)["stringData"]});
        let objects = Objects::of(cluster).await;
        objects.merge(&self.source(2), "somebody", &theirs).await;
    }

    /// `secrets` of `konverge.yaml`.
    pub fn config(&self) -> String {
        let [vault, moto, clouds, ali] = &self.addresses;
        let stores = [
            ("job", "kind: env".to_owned(), "PAY_*".to_owned()),
            (
                "vaulted",
                format!("kind: vault, address: '{vault}'"),
                "secret/pay/*".to_owned(),
            ),
            (
                "sm",
                format!("kind: aws, region: {REGION}, address: '{moto}'"),
                "pay/*".to_owned(),
            ),
            (
                "params",
                format!("kind: ssm, region: {REGION}, address: '{moto}'"),
                "/pay/*".to_owned(),
            ),
            (
                "google",
                format!("kind: gcp, address: '{clouds}'"),
                "acme/*".to_owned(),
            ),
            (
                "keyvault",
                format!("kind: azure, address: '{clouds}'"),
                "pay*".to_owned(),
            ),
            ("ali", format!("kind: alikms, address: '{ali}'"), "pay".to_owned()),
            ("files", "kind: sops".to_owned(), "secrets/*".to_owned()),
            (
                "platform",
                "kind: kubernetes".to_owned(),
                format!("{}/source", self.namespace),
            ),
        ];
        let lines = stores.map(|(name, keys, paths)| {
            format!("    {name}: {{{keys}, allow: [{{stacks: 'apps/shop/*', paths: '{paths}'}}]}}\n")
        });
        format!("secrets:\n  stores:\n{}", lines.concat())
    }

    /// What a job has to read them.
    pub fn job(&self, version: usize) -> Vec<(&'static str, String)> {
        let clouds = &self.addresses[2];
        vec![
            ("PAY_PASSWORD", Self::value("job", version)),
            ("VAULT_TOKEN", self.token.clone()),
            ("AZURE_CLIENT_ID", "app".to_owned()),
            ("AZURE_TENANT_ID", "tenant".to_owned()),
            ("AZURE_CLIENT_SECRET", "the-secret-of-the-app".to_owned()),
            ("AZURE_AUTHORITY_HOST", clouds.clone()),
            (
                "GCE_METADATA_HOST",
                clouds.trim_start_matches("http://").to_owned(),
            ),
            ("ALIBABA_CLOUD_ACCESS_KEY_ID", ALIBABA.0.to_owned()),
            ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", ALIBABA.1.to_owned()),
            ("SOPS_AGE_KEY", fixture("identity.txt")),
        ]
    }

    /// The Secret that refers to all of them: a key for each store, and a text around the value of each.
    pub fn secret(&self, note: &str) -> Value {
        let paths = [
            ("job", "PAY_PASSWORD"),
            ("vaulted", "secret/pay/db#/password"),
            ("sm", "pay/db"),
            ("params", "/pay/token"),
            ("google", "acme/pay"),
            ("keyvault", "pay-azure"),
            ("ali", "pay"),
            ("files", "secrets/db.yaml#/password"),
            ("platform", &format!("{}/source#/password", self.namespace)),
        ];
        let mut texts = serde_json::Map::new();
        for (name, path) in paths {
            texts.insert(name.to_owned(), json!(format!("ref+{name}://{path}")));
            let around = format!("postgres://app:ref+{name}://{path}+@db");
            texts.insert(format!("{name}-url"), json!(around));
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": texts,
            "metadata": {"name": "pay", "namespace": self.namespace, "annotations": {"note": note}},
        })
    }

    /// The object has the values, or nothing was tested.
    pub async fn are_written(&self, cluster: &Cluster, version: usize) {
        let live = Objects::of(cluster).await.get(&self.secret("")).await.unwrap();
        for (name, _) in CANARIES {
            let value = Self::value(name, version);
            let around = format!("postgres://app:{value}@db");
            for (key, expected) in [(name.to_owned(), value), (format!("{name}-url"), around)] {
                assert_eq!(live["data"][&key], STANDARD.encode(expected), "{key}");
            }
        }
    }
}

/// Looks for the values and the logins, also in base64.
pub(super) fn holds_no_value(texts: &[&str], what: &str) {
    for (store, canary) in CANARIES {
        // The last of them also holds bits of what follows.
        let encoded = STANDARD.encode(&canary[..canary.len() / 3 * 3]);
        for text in texts {
            for word in [canary, &encoded] {
                assert!(!text.contains(word), "{what} leaves {word} of {store}:\n{text}");
            }
        }
    }
    for text in texts {
        for login in LOGINS {
            assert!(!text.contains(login), "{what} leaves {login}:\n{text}");
        }
    }
}
