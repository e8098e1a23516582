//! Secrets of a Vault: previews read versions with a role of their own, applies read values; a version that moved.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    process::Outcome,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
    vault::FakeVault,
};

/// In every value.
pub(super) const CANARY: &str = "c4nary-Kq7w!Zx";

pub(super) struct Vaulted {
    pub(super) shop: Shop,
    pub(super) vault: FakeVault,
    pub(super) cluster: &'static Cluster,
    pub(super) namespace: String,
}

impl Vaulted {
    pub(super) async fn new(subject: &str, more: &str) -> Self {
        let (cluster, vault) = (Cluster::shared(), FakeVault::start().await);
        let namespace = cluster.namespace(subject).await;
        let config = config(
            more,
            &vault,
            "auth: {method: jwt, role: apply, preview_role: preview}",
        );
        vault.allow("preview", &["secret/metadata/"]);
        vault.allow("apply", &["secret/metadata/", "secret/data/pay/", "kv/pay/"]);
        Self {
            shop: Shop::new(&config, &[("KUBECONFIG", cluster.kubeconfig().as_path())]),
            vault,
            cluster,
            namespace,
        }
    }

    /// Gives the store other keys.
    pub(super) fn configure(&self, store: &str) {
        let config = config("", &self.vault, store);
        self.shop.monorepo.write("konverge.yaml", config).commit("config");
    }

    /// Applies with these variables alone.
    pub(super) fn apply_with(&self, variables: &[(&'static str, &str)]) -> Outcome {
        let run = self
            .shop
            .konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
            .env("KONVERGE_LOG", "trace");
        let set = variables.iter();
        set.fold(run, |run, (name, value)| run.env(name, value)).run()
    }

    pub(super) fn wants(&self, texts: Value, annotations: Value) -> Value {
        let metadata = json!({"name": "pay", "namespace": self.namespace, "annotations": annotations});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts});
        self.shop.wants("prod", &[resource(&object)]);
        object
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Outcome {
        let run = self.shop.konverge(arguments).env("KONVERGE_LOG", "trace");
        let run = self
            .vault
            .job()
            .into_iter()
            .fold(run, |run, (name, value)| run.env(name, value));
        run.run()
    }

    pub(super) fn apply(&self) -> Outcome {
        self.run(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
    }

    pub(super) fn preview(&self) -> Outcome {
        self.run(&["preview", "--all", "--live", "required", "--output", "json"])
    }

    pub(super) async fn value(&self, object: &Value, key: &str) -> Option<String> {
        use base64::Engine as _;
        let live = Objects::of(self.cluster).await.get(object).await?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(live["data"][key].as_str()?)
            .unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    pub(super) fn holds_no_value(&self, outcome: &Outcome) {
        let state = self.shop.monorepo.path().join(".git/test-state");
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        for text in [&outcome.stdout, &outcome.stderr, &state] {
            assert!(!text.contains(CANARY) && !text.contains("hvs."), "{text}");
        }
    }
}

/// konverge.yaml with one store.
fn config(more: &str, vault: &FakeVault, store: &str) -> String {
    format!(
        "clusters: {{test: {{}}}}\nsecrets:\n{more}  stores:\n    db:\n      kind: vault\n      address: {}\n      {store}\n      \
         allow: [{{stacks: 'apps/shop/*', paths: 'secret/pay/**'}}, {{stacks: 'apps/shop/*', paths: 'pay/**'}}]\n",
        vault.address()
    )
}

pub(super) fn changes(outcome: &Outcome) -> Vec<Value> {
    let stack = outcome.json()["stacks"][0].take();
    assert!(stack["error"].is_null(), "{stack}");
    let resources = stack["resources"].as_array().unwrap().iter();
    resources
        .flat_map(|resource| resource["changes"].as_array().unwrap().clone())
        .collect()
}

pub(super) fn mark(version: &str) -> Value {
    json!({"$secret": {"ref": "db:secret/pay/db#/password", "version": version}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_reads_versions_and_an_apply_values() {
    let vaulted = Vaulted::new("vault", "").await;
    vaulted.vault.put(
        "pay/db",
        json!({"password": format!("{CANARY}-1"), "user": "app"}),
    );
    let texts = json!({"password": "ref+vault://secret/pay/db#/password", "url": "ref+db://secret/pay/db#/user+:ref+db://secret/pay/db#/password"});
    let pay = vaulted.wants(
        texts,
        json!({"konverge.example/version": "ref+db://secret/pay/db?as=version"}),
    );

    let made = changes(&vaulted.preview().expect(0));
    assert_eq!(made[0]["to"]["data"]["password"], mark("1"), "{made:?}");
    assert_eq!(
        made[0]["to"]["metadata"]["annotations"]["konverge.example/version"],
        "1"
    );
    let asked = vaulted.vault.requests();
    let metadata = ("preview".to_owned(), "secret/metadata/pay/db".to_owned());
    let login = ("preview".to_owned(), "auth/jwt/login".to_owned());
    assert_eq!(asked, [login, metadata], "one login, one question");

    let applied = vaulted.apply().expect(0);
    vaulted.holds_no_value(&applied);
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    assert_eq!(vaulted.value(&pay, "url").await, Some(format!("app:{CANARY}-1")));
    let asked = vaulted.vault.requests();
    let values = asked
        .iter()
        .filter(|(_, path)| path == "secret/data/pay/db")
        .count();
    assert_eq!(values, 1, "{asked:?}");
    assert!(asked.iter().all(|(role, _)| role == "apply"), "{asked:?}");
    assert_eq!(changes(&vaulted.preview().expect(0)), [] as [Value; 0]);

    // The version moved: the preview says so, and an apply follows.
    vaulted.vault.put(
        "pay/db",
        json!({"password": format!("{CANARY}-2"), "user": "app"}),
    );
    let previewed = vaulted.preview().expect(0);
    let moved = changes(&previewed);
    assert!(
        moved.iter().all(|change| change["origin"] == "rotation"),
        "{moved:?}"
    );
    let password = moved
        .iter()
        .find(|change| change["path"] == "/data/password")
        .unwrap();
    assert_eq!(password["to"], mark("2"));
    let notes = previewed.json()["stacks"][0]["resources"][0]["notes"].to_string();
    assert!(notes.contains("moved from version 1 to 2"), "{notes}");
    let drift = vaulted
        .run(&["drift", "--output", "json", "--exit-code"])
        .expect(2);
    assert!(drift.stdout.contains("rotation"), "{}", drift.stdout);
    vaulted.holds_no_value(&vaulted.apply().expect(0));
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-2")));

    // A version that the author asks for stays.
    vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db?version=1#/password"}),
        json!({}),
    );
    vaulted.apply().expect(0);
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    vaulted
        .vault
        .put("pay/db", json!({"password": format!("{CANARY}-3")}));
    assert_eq!(changes(&vaulted.preview().expect(0)), [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vault_denies_or_lacks_stops_the_stack_with_its_words() {
    let vaulted = Vaulted::new("vault-denies", "").await;
    vaulted.vault.put("pay/db", json!({"password": CANARY}));
    vaulted.vault.put("pay/gone", json!({"password": CANARY}));
    vaulted.vault.delete("pay/gone");
    vaulted.vault.put("pay/deeper/db", json!({"password": CANARY}));
    vaulted.vault.allow(
        "apply",
        &[
            "secret/metadata/",
            "secret/data/pay/db",
            "secret/data/pay/gone",
            "secret/data/pay/none",
        ],
    );
    for (reference, why) in [
        ("ref+vault://secret/pay/none#/password", "is not there (HTTP 404)"),
        ("ref+vault://secret/pay/gone#/password", "is not there (HTTP 404)"),
        (
            "ref+vault://secret/pay/db?version=9#/password",
            "is not there (HTTP 404)",
        ),
        ("ref+vault://secret/pay/db#/user", "has no key `user`"),
        (
            "ref+vault://secret/pay/deeper/db#/password",
            "was denied (HTTP 403): 1 error occurred",
        ),
    ] {
        let pay = vaulted.wants(json!({"password": reference}), json!({}));
        let outcome = vaulted.apply().expect(1);
        let error = outcome.json()["stacks"][0]["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with("secret store `db`: `secret/pay/") && message.contains(why),
            "{message}"
        );
        assert_eq!(vaulted.value(&pay, "password").await, None);
        vaulted.holds_no_value(&outcome);
    }
    vaulted.vault.allow("other", &[]);
    vaulted.vault.requests();
    let hostile = vaulted.wants(
        json!({"password": "ref+vault://secret/root/key#/password"}),
        json!({}),
    );
    let refused = vaulted.apply().expect(1);
    assert!(
        refused.stdout.contains("may not read `secret/root/key`"),
        "{}",
        refused.stdout
    );
    assert_eq!(vaulted.value(&hostile, "password").await, None);
    assert_eq!(vaulted.vault.requests(), [], "nothing is asked of the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_without_versions_is_asked_in_an_apply_alone() {
    let vaulted = Vaulted::new("vault-kv1", "").await;
    vaulted.configure("auth: {method: jwt, role: apply}\n      mount: kv\n      kv: 1");
    vaulted
        .vault
        .put_plain("pay/db", json!({"password": format!("{CANARY}-1")}));
    let pay = vaulted.wants(json!({"password": "ref+vault://pay/db#/password"}), json!({}));
    let previewed = changes(&vaulted.preview().expect(0));
    assert_eq!(
        previewed[0]["to"]["data"]["password"],
        json!({"$secret": {"ref": "db:pay/db#/password"}})
    );
    assert_eq!(
        vaulted.vault.requests(),
        [],
        "to read the version is to read the value"
    );
    vaulted.holds_no_value(&vaulted.apply().expect(0));
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    vaulted.vault.requests();
    let again = vaulted.apply().expect(0);
    assert_eq!(
        again.json()["stacks"][0]["result"],
        "unchanged",
        "{}",
        again.stdout
    );
    vaulted
        .vault
        .put_plain("pay/db", json!({"password": format!("{CANARY}-2")}));
    vaulted.holds_no_value(&vaulted.apply().expect(0));
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-2")));
    let reads = vaulted.vault.requests();
    let paths: Vec<_> = reads.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["auth/jwt/login", "kv/pay/db", "auth/jwt/login", "kv/pay/db"]
    );
    // A version is refused before anything is asked.
    vaulted.wants(
        json!({"password": "ref+vault://pay/db?version=1#/password"}),
        json!({}),
    );
    let refused = vaulted.apply().expect(1);
    assert!(refused.stdout.contains("has no versions"), "{}", refused.stdout);
    assert_eq!(vaulted.vault.requests(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_noted_once() {
    let vaulted = Vaulted::new("vault-away", "").await;
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = config("", &vaulted.vault, "auth: {method: token}");
    let config = config.replace(vaulted.vault.address(), &format!("http://{gone}"));
    vaulted
        .shop
        .monorepo
        .write("konverge.yaml", config)
        .commit("config");
    let texts = (0..8).map(|at| {
        (
            at.to_string(),
            json!(format!("ref+vault://secret/pay/{at}#/password")),
        )
    });
    let pay = vaulted.wants(Value::Object(texts.collect()), json!({}));
    for (variables, why) in [
        (
            vec![("VAULT_TOKEN", "hvs.any-token-of-a-job")],
            "could not be read",
        ),
        (Vec::new(), "VAULT_TOKEN is not set"),
    ] {
        let run = vaulted
            .shop
            .konverge(&["preview", "--all", "--live", "required", "--output", "json"]);
        let run = variables
            .into_iter()
            .fold(run, |run, (name, value)| run.env(name, value));
        let previewed = run.run().expect(0);
        assert_eq!(changes(&previewed).len(), 1, "{}", previewed.stdout);
        let notes: Vec<_> = previewed
            .stderr
            .lines()
            .filter(|line| line.contains("version"))
            .collect();
        assert!(notes.len() == 1 && notes[0].contains(why), "{notes:?}");
    }
    let refused = vaulted
        .apply_with(&[("VAULT_TOKEN", "hvs.any-token-of-a-job")])
        .expect(1);
    assert!(
        refused
            .stdout
            .contains("run the command again when the secret store answers"),
        "{}",
        refused.stdout
    );
    assert_eq!(vaulted.value(&pay, "0").await, None);
}
