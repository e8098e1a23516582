//! Files that SOPS encrypted: SOPS itself made what is read here. A preview needs no key; an apply decrypts with the
//! age identity of the job, or with the keys that the default branch names.

use std::{path::PathBuf, process::Command, sync::Arc};

use konverge_cloud::secret_stores::{RevisionFiles, SecretQuery, SecretStore as _, SopsStore};
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

struct OneFile(String);

impl RevisionFiles for OneFile {
    fn read(&self, _: &str) -> Result<Option<Arc<[u8]>>, String> {
        Ok(Some(self.0.as_bytes().into()))
    }
}

/// The value at these keys in the text of a file, or why there is none.
async fn select(path: &str, text: &str, keys: &[&str]) -> Result<String, String> {
    let store = SopsStore::new(
        Arc::new(OneFile(text.to_owned())),
        Some(&fixture("identity.txt")),
        Vec::new(),
    );
    let query = SecretQuery {
        path: path.to_owned(),
        version: None,
    };
    let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
    let found = store.read(&query).await.map_err(|problem| problem.to_string())?;
    let value = found
        .document
        .select(&keys)
        .map_err(|problem| problem.to_string())?;
    Ok(value.expose_text().unwrap().to_owned())
}

/// All values of a file are those of the clear document that SOPS encrypted.
async fn holds(path: &str, text: &str, clear: &Value) {
    for (key, value) in clear.as_object().unwrap() {
        let found = select(path, text, &[key]).await;
        match value {
            Value::Null => assert!(found.is_err(), "{key}"),
            Value::String(text) if text.is_empty() => assert!(found.is_err(), "{key}"),
            Value::String(text) => assert_eq!(found.as_ref(), Ok(text), "{path}: {key}"),
            other => {
                let found: Value = serde_json::from_str(&found.expect(key)).unwrap();
                assert_eq!(&found, other, "{path}: {key}");
            }
        }
    }
}

#[tokio::test]
async fn what_sops_encrypted_is_read() {
    let clear: Value = serde_json::from_str(&fixture("clear.json")).unwrap();
    for name in ["all.yaml", "only.yaml", "names.yaml", "tree.json"] {
        holds(name, &fixture(name), &clear).await;
    }
    assert_eq!(
        select("db-1.yaml", &fixture("db-1.yaml"), &["password"]).await,
        Ok(format!("{CANARY}-1"))
    );
}

/// The text of the value of a key, in a file of SOPS.
fn sealed<'a>(text: &'a str, key: &str) -> &'a str {
    let after = text.split_once(&format!("{key}: ")).unwrap().1;
    after.lines().next().unwrap()
}

#[tokio::test]
async fn a_changed_file_gives_nothing() {
    let all = fixture("all.yaml");
    let (port, ratio) = (sealed(&all, "port"), sealed(&all, "ratio"));
    let only = fixture("only.yaml");
    let changed = [
        // Each value belongs to its place.
        all.replace(port, ratio),
        all.replace(port, "5432"),
        // Values that were taken out, added or put in another order.
        all.replace(&format!("port: {port}\n"), ""),
        all.replace("empty: \"\"", "empty: \"\"\nmore: \"\"\nport_unencrypted: 1"),
        all.replace(
            &format!("port: {port}\nratio: {ratio}"),
            &format!("ratio: {ratio}\nport: {port}"),
        ),
        only.replace(sealed(&only, "password"), "hunter2222"),
        only.replace("mac_only_encrypted: true\n", ""),
        fixture("names.yaml").replace("port: 5432", "port: 5433"),
        // What is not understood.
        all.replace("sops:\n", "sops:\n    shamir_threshold: 2\n"),
        all.replace("sops:\n", "sops:\n    encrypted_comment_regex: x\n"),
        all.replace("sops:\n", "more:\n"),
        format!("{all}---\na: b\n"),
    ];
    for (index, text) in changed.iter().enumerate() {
        assert_ne!(text, &all, "{index}");
        let found = select("all.yaml", text, &["plain_unencrypted"]).await;
        let why = found.expect_err(&format!("{index}: {text}"));
        assert!(
            why.contains("cannot be decrypted") && !why.contains(CANARY),
            "{index}: {why}"
        );
    }
    let other = "AGE-SECRET-KEY-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0SHY6Z2X";
    assert!(!fixture("identity.txt").contains(other));
    let store = SopsStore::new(Arc::new(OneFile(all)), Some(other), Vec::new());
    let query = SecretQuery {
        path: "all.yaml".to_owned(),
        version: None,
    };
    let refused = store
        .read(&query)
        .await
        .err()
        .expect("it has another recipient")
        .to_string();
    assert!(refused.contains("its recipients: age"), "{refused}");
}

/// A file that says its own path is read there and nowhere else.
#[tokio::test]
async fn a_file_with_its_own_path_is_read_there_alone() {
    let (own, loose) = (fixture("own.yaml"), fixture("loose.yaml"));
    assert_eq!(
        select("secrets/db.yaml", &own, &["password"]).await,
        Ok(format!("{CANARY}-3"))
    );
    let line = own.lines().next().unwrap();
    let refused = [
        ("secrets/copy.yaml", own.clone(), "so the file is a copy"),
        (
            "secrets/copy.yaml",
            own.replace(&format!("{line}\n"), ""),
            "changed by hand",
        ),
        (
            "secrets/copy.yaml",
            own.replace(line, "konverge_path: secrets/copy.yaml"),
            "`konverge_path`",
        ),
        // Its MAC has the encrypted values alone.
        ("secrets/db.yaml", loose.clone(), "its MAC does not cover"),
        (
            "secrets/copy.yaml",
            loose.replace("secrets/db.yaml", "secrets/copy.yaml"),
            "its MAC does not cover",
        ),
    ];
    for (path, text, why) in refused {
        let found = select(path, &text, &["password"]).await.unwrap_err();
        assert!(found.contains(why) && !found.contains(CANARY), "{found}");
    }
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

/// SOPS refuses what is refused here, and reads what is read here.
#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn sops_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let identity = fixture("identity.txt");
    let recipient = identity
        .lines()
        .find_map(|line| line.strip_prefix("# public key: "))
        .unwrap();
    let key = identity.lines().last().unwrap();
    let variables = [("SOPS_AGE_KEY", key), ("HOME", folder.path().to_str().unwrap())];
    for (name, text) in [
        (
            "one.yaml",
            "a: b\nn: 17\nf: 1.5e3\nt: true\nlist:\n    - x\n    - {y: z}\n# c\ndeep: {er: {est: \"1\"}}\n",
        ),
        (
            "two.json",
            r#"{"a": "b", "n": 17, "f": 0.001, "t": false, "list": ["x", {"y": "z"}], "e": ""}"#,
        ),
        (
            "three.yaml",
            "kind: Secret\nstringData:\n    a: |\n        two\n        lines\n    b: \"ä€😀\"\n",
        ),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        let file = sops(folder.path(), &["encrypt", "--age", recipient, name], &variables);
        std::fs::write(folder.path().join(name), &file).unwrap();
        let clear = sops(
            folder.path(),
            &["decrypt", "--output-type", "json", name],
            &variables,
        );
        holds(name, &file, &serde_json::from_str(&clear).unwrap()).await;
    }
}
