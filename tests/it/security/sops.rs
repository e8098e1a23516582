//! Files that SOPS encrypted, as secrets of a stack. A preview needs no key; an apply decrypts with the age identity of
//! the job, or with the keys that the default branch names.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    executable,
    moto::Moto,
    objects::Objects,
    process::{Konverge, Outcome},
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
    vault::FakeVault,
};

/// In every password.
pub(super) const CANARY: &str = "c4nary-Sp2s!Zk";

pub(super) fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sops");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

pub(super) struct Encrypted {
    pub(super) shop: Shop,
    cluster: &'static Cluster,
    pay: Value,
}

impl Encrypted {
    pub(super) async fn new(subject: &str, more: &str, stores: &str) -> Self {
        let cluster = Cluster::shared();
        let namespace = cluster.namespace(subject).await;
        let config = format!(
            "clusters: {{test: {{}}}}\nsecrets:\n  stores:\n    files:\n      kind: sops\n      {more}\n      \
             allow: [{{stacks: 'apps/shop/*', paths: 'secrets/*'}}]\n{stores}"
        );
        let shop = Shop::new(&config, &[("KUBECONFIG", cluster.kubeconfig().as_path())]);
        let metadata = json!({"name": "pay", "namespace": namespace, "annotations": {"konverge.example/version": "ref+sops://secrets/db.yaml?as=version"}});
        let texts = json!({"password": "ref+sops://secrets/db.yaml#/password", "users": "ref+files://secrets/db.yaml#/users"});
        let pay = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts});
        Self { shop, cluster, pay }
    }

    /// Commits the file, and the stack that refers to it.
    pub(super) fn commit(&self, file: &str) {
        self.shop.monorepo.write("secrets/db.yaml", file);
        self.shop.wants("prod", &[resource(&self.pay)]);
        self.shop.monorepo.commit("encrypted");
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        self.shop.konverge(arguments).env("KONVERGE_LOG", "trace")
    }

    pub(super) fn preview(&self) -> Outcome {
        self.konverge(&["preview", "--all", "--live", "required", "--output", "json"])
            .run()
    }

    pub(super) fn apply(&self) -> Konverge {
        self.konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
    }

    pub(super) async fn password(&self) -> Option<String> {
        use base64::Engine as _;
        let live = Objects::of(self.cluster).await.get(&self.pay).await?;
        let password = live["data"]["password"].as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(password)
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
            assert!(
                !text.contains(CANARY) && !text.contains("AGE-SECRET-KEY"),
                "{text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_needs_no_key_and_an_apply_decrypts() {
    let encrypted = Encrypted::new("sops", "", "").await;
    encrypted.commit(&fixture("db-1.yaml"));
    let mark = |outcome: &Outcome| {
        let changes = outcome.json()["stacks"][0]["resources"][0]["changes"].take();
        let text = changes.to_string();
        assert!(text.contains("files:secrets/db.yaml#/password"), "{text}");
        text
    };
    let first = encrypted.preview().expect(0);
    let shown = mark(&first);
    encrypted.holds_no_value(&first);

    let refused = encrypted.apply().run().expect(1);
    assert!(
        refused.stdout.contains("SOPS_AGE_KEY"),
        "{} {}",
        refused.stdout,
        refused.stderr
    );
    assert_eq!(encrypted.password().await, None, "nothing is touched");
    let identity = fixture("identity.txt");
    let applied = encrypted.apply().env("SOPS_AGE_KEY", &identity).run().expect(0);
    encrypted.holds_no_value(&applied);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-1")));
    let unchanged = encrypted.preview().expect(0).json();
    assert_eq!(unchanged["stacks"][0]["resources"], json!([]), "{unchanged}");

    // The file is an input of the stack, and its digest is the version.
    encrypted
        .shop
        .monorepo
        .write("secrets/db.yaml", fixture("db-2.yaml"));
    encrypted.shop.monorepo.write("secrets/other.yaml", "of nobody");
    encrypted.shop.monorepo.commit("rotated");
    let affected = encrypted
        .konverge(&["affected", "--base", "HEAD~1", "--output", "json"])
        .run()
        .expect(0)
        .json();
    let why = affected["stacks"][0]["why"].clone();
    assert!(
        why.to_string()
            .contains(r#""path":"secrets/db.yaml","kind":"data""#),
        "{affected}"
    );
    let second = encrypted.preview().expect(0);
    assert_ne!(mark(&second), shown);
    encrypted.holds_no_value(&second);
    encrypted.apply().env("SOPS_AGE_KEY", &identity).run().expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-2")));

    // A path outside of the rules, a file that is none, and a version gives nothing.
    for (reference, why) in [
        ("ref+sops://elsewhere/db.yaml#/password", "may not read"),
        ("ref+sops://secrets/../secrets/db.yaml#/password", "secrets"),
        ("ref+sops://secrets/db.txt#/password", "secrets/db.txt"),
        (
            "ref+sops://secrets/db.yaml?version=1#/password",
            "secrets/db.yaml",
        ),
        ("ref+sops://secrets/none.yaml#/password", "is not there"),
    ] {
        let mut other = encrypted.pay.clone();
        other["stringData"] = json!({"password": reference});
        encrypted.shop.wants("prod", &[resource(&other)]);
        let refused = encrypted.apply().env("SOPS_AGE_KEY", &identity).run().expect(1);
        assert!(
            refused.stdout.contains(why),
            "{reference}: {} {}",
            refused.stdout,
            refused.stderr
        );
        encrypted.holds_no_value(&refused);
    }
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-2")));
}

/// A file changes by a commit, so that its change is reviewed like any other: it is no rotation.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_a_change_whatever_rotations_do() {
    let encrypted = Encrypted::new("sops-notify", "", "  rotation: notify\n").await;
    let identity = fixture("identity.txt");
    encrypted.commit(&fixture("db-1.yaml"));
    encrypted.apply().env("SOPS_AGE_KEY", &identity).run().expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-1")));
    encrypted.commit(&fixture("db-2.yaml"));
    let shown = encrypted.preview().expect(0).json();
    let changes = shown["stacks"][0]["resources"][0]["changes"].as_array().unwrap();
    assert!(changes.len() > 1, "{shown}");
    assert!(
        changes.iter().all(|change| change["origin"] != "rotation"),
        "{shown}"
    );
    encrypted.apply().env("SOPS_AGE_KEY", &identity).run().expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-2")));
}

/// Runs SOPS itself.
fn sops(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(executable("sops", "sops"));
    command
        .args(arguments)
        .current_dir(folder)
        .envs(variables.iter().copied());
    let output = command.output().expect("sops can be started");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// SOPS encrypts with KMS (moto) and with a transit engine, and Konverge decrypts with the keys that the default branch
/// names; with no other, whatever the file says.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn sops_encrypts_with_a_key_service_and_an_apply_decrypts() {
    let (moto, vault) = (Moto::start(), FakeVault::start().await);
    let key = moto.call("kms", "TrentService.CreateKey", json!({})).await;
    let arn = key["KeyMetadata"]["Arn"].as_str().unwrap();
    vault.allow("apply", &["transit/"]);
    let token = vault.token("apply");
    let folder = tempfile::tempdir().unwrap();
    let clear = folder.path().join("db.yaml");
    std::fs::write(&clear, format!("password: {CANARY}-7\nusers:\n    - name: app\n")).unwrap();
    let variables = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ENDPOINT_URL_KMS", moto.endpoint()),
        ("VAULT_TOKEN", &token),
        ("HOME", folder.path().to_str().unwrap()),
    ];
    let transit = format!("{}/v1/transit/keys/team", vault.address());
    let stores = format!("    db: {{kind: vault, address: '{}'}}\n", vault.address());
    for (subject, argument, value, own) in [
        ("sops-kms", "--kms", arn, format!("awskms:{arn}")),
        (
            "sops-vault",
            "--hc-vault-transit",
            transit.as_str(),
            "vault-transit:db/transit/team".to_owned(),
        ),
    ] {
        let file = sops(
            folder.path(),
            &["encrypt", argument, value, "db.yaml"],
            &variables,
        );
        let apply = |encrypted: &Encrypted| {
            let run = encrypted.apply();
            variables
                .iter()
                .fold(run, |run, (name, value)| run.env(name, value))
                .run()
        };
        let foreign = Encrypted::new(&format!("{subject}-other"), "", &stores).await;
        foreign.commit(&file);
        let refused = apply(&foreign).expect(1);
        assert!(
            refused.stdout.contains("its recipients: "),
            "{} {}",
            refused.stdout,
            refused.stderr
        );
        let encrypted = Encrypted::new(subject, &format!("keys: ['{own}']"), &stores).await;
        encrypted.commit(&file);
        encrypted.holds_no_value(&apply(&encrypted).expect(0));
        assert_eq!(
            encrypted.password().await,
            Some(format!("{CANARY}-7")),
            "{subject}"
        );
    }
}
