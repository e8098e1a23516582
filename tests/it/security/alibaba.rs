//! Secrets of Alibaba Cloud KMS, on a fake that answers as its documentation says and checks every signature.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    key_clouds::KeyClouds,
    objects::Objects,
    process::Outcome,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
};

/// In every value.
const CANARY: &str = "c4nary-Ali!Kz7";

struct Alibaba {
    shop: Shop,
    clouds: KeyClouds,
    cluster: &'static Cluster,
    pay: Value,
}

impl Alibaba {
    async fn new(subject: &str, reference: &str) -> Self {
        let (cluster, clouds) = (Cluster::shared(), KeyClouds::start().await);
        let namespace = cluster.namespace(subject).await;
        let config = format!(
            "clusters: {{test: {{}}}}\nsecrets: {{stores: {{ali: {{kind: alikms, address: '{}', allow: [{{stacks: 'apps/shop/*', paths: 'pay*'}}]}}}}}}\n",
            clouds.address()
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
        let run = self.shop.konverge(arguments).env("KONVERGE_LOG", "trace");
        let variables = self.clouds.job().into_iter();
        let outcome = variables
            .fold(run, |run, (name, value)| run.env(name, value))
            .run();
        let state = self.shop.monorepo.path().join(".git/test-state");
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        let encoded = base64::engine::general_purpose::STANDARD.encode(CANARY);
        for text in [&outcome.stdout, &outcome.stderr, &state] {
            for secret in [CANARY, &encoded, "the-secret-of-the-alibaba-key"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        outcome
    }

    fn preview(&self) -> Outcome {
        self.run(&["preview", "--all", "--live", "required", "--output", "json"])
    }

    fn apply(&self) -> Outcome {
        self.run(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
    }

    fn wants(&self, reference: &str) {
        let mut pay = self.pay.clone();
        pay["stringData"]["password"] = json!(reference);
        self.shop.wants("prod", &[resource(&pay)]);
    }

    async fn password(&self) -> Option<Vec<u8>> {
        let live = Objects::of(self.cluster).await.get(&self.pay).await?;
        let text = live["data"]["password"].as_str()?;
        base64::engine::general_purpose::STANDARD.decode(text).ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_reads_versions_and_an_apply_values() {
    let ali = Alibaba::new("ali-secrets", "ref+alikms://pay").await;
    ali.clouds.put("pay", &format!("{CANARY}-1"), "text");
    ali.clouds.world().denies_values = true;
    let preview = ali.preview().expect(0).json();
    let mark = json!({"$secret": {"ref": "ali:pay", "version": "v1"}});
    let to = &preview["stacks"][0]["resources"][0]["changes"][0]["to"];
    assert_eq!(to["data"]["password"], mark, "{preview}");
    assert_eq!(ali.clouds.requests(), ["ListSecretVersionIds"]);
    let denied = ali.apply().expect(1);
    assert!(
        denied.stdout.contains("was denied (HTTP 403)"),
        "{}",
        denied.stdout
    );
    assert_eq!(ali.password().await, None, "nothing is touched");

    ali.clouds.world().denies_values = false;
    // Alibaba says with status 400 that it is busy.
    ali.clouds.world().is_busy = 1;
    ali.apply().expect(0);
    assert_eq!(ali.password().await, Some(format!("{CANARY}-1").into_bytes()));
    ali.clouds.put("pay", &format!("{CANARY}-2"), "text");
    let moved = ali.preview().expect(0);
    assert!(
        moved.stdout.contains(r#""origin":"rotation""#),
        "{}",
        moved.stdout
    );
    ali.apply().expect(0);
    assert_eq!(ali.password().await, Some(format!("{CANARY}-2").into_bytes()));

    // A version that the author asks for, which has no stage any more, and bytes.
    ali.clouds.put("pay", &format!("{CANARY}-3"), "text");
    ali.wants("ref+alikms://pay?version=v1");
    ali.preview().expect(0);
    ali.apply().expect(0);
    assert_eq!(ali.password().await, Some(format!("{CANARY}-1").into_bytes()));
    let bytes = base64::engine::general_purpose::STANDARD.encode([0, 159, 146, 150]);
    ali.clouds.put("pay-key", &bytes, "binary");
    let mut pay = ali.pay.clone();
    pay.as_object_mut().unwrap().remove("stringData");
    pay["data"] =
        json!({"password": base64::engine::general_purpose::STANDARD.encode("ref+alikms://pay-key")});
    ali.shop.wants("prod", &[resource(&pay)]);
    ali.apply().expect(0);
    assert_eq!(ali.password().await, Some(vec![0, 159, 146, 150]));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_path_or_version_is_not_read() {
    let ali = Alibaba::new("ali-refused", "ref+alikms://pay").await;
    ali.clouds.put("pay", &format!("{CANARY}-1"), "text");
    ali.clouds.put("pay", &format!("{CANARY}-2"), "text");
    ali.clouds.put("other", CANARY, "text");
    for (reference, why) in [
        ("ref+alikms://other", "may not read `other`"),
        ("ref+alikms://acs:kms:cn-hangzhou:1:secret/pay", "is not a path"),
        ("ref+alikms://pay?region=cn-beijing", "secrets.stores.ali.region"),
        ("ref+alikms://pay?version=v9", "is not there (HTTP 404)"),
        ("ref+alikms://pay-none", "is not there (HTTP 404)"),
    ] {
        ali.wants(reference);
        let refused = ali.apply().expect(1);
        assert!(refused.stdout.contains(why), "{reference}: {}", refused.stdout);
    }
    // Rotated secrets of databases answer with the newest version, whichever was asked for.
    ali.clouds.world().ignores_versions = true;
    ali.wants("ref+alikms://pay?version=v1");
    let refused = ali.apply().expect(1);
    assert!(
        refused.stdout.contains("cannot be read by version"),
        "{}",
        refused.stdout
    );
    assert_eq!(ali.password().await, None);
}

/// The client that Alibaba publishes finds on the fake what Konverge finds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn the_published_client_reads_the_same() {
    use crate::support::{cloud_sdks, key_clouds, process::Konverge};
    let clouds = KeyClouds::start().await;
    clouds.put("pay", &format!("{CANARY}-1"), "text");
    clouds.put("pay", &format!("{CANARY}-2"), "text");
    let program = include_str!("../support/alibaba_sdk.py");
    let host = clouds.address().trim_start_matches("http://").to_owned();
    let (id, secret) = key_clouds::ALIBABA;
    let arguments = ["-c", program, &host, id, secret, key_clouds::ALIBABA_KEY];
    let said = Konverge::of(&cloud_sdks(), arguments).run().expect(0).json();
    let expected = json!({
        "newest": [format!("{CANARY}-2"), "v2"],
        "first": [format!("{CANARY}-1"), "v1"],
        "versions": {"v1": ["ACSPrevious"], "v2": ["ACSCurrent"]},
        "missing": "Forbidden.ResourceNotFound",
        "opened": true,
    });
    assert_eq!(said, expected);
}
