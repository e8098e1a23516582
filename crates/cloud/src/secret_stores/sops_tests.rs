//! Files that SOPS encrypted: SOPS itself made what is read here.

use std::path::PathBuf;

use serde_json::Value;

use super::*;

/// In every password.
const CANARY: &str = "c4nary-Sp2s!Zk";

fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sops");
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

/// A file names its recipients itself, so that it could name a key of somebody else.
#[tokio::test]
async fn a_key_that_only_the_file_names_is_not_asked() {
    let file = r#"{"password": "x", "sops": {
        "kms": [{"arn": "arn:aws:kms:eu-central-1:1:key/a", "enc": "AAAA"}],
        "hc_vault": [{"engine_path": "transit/", "key_name": "team", "enc": "vault:v1:AAAA"}],
        "gcp_kms": [{"resource_id": "projects/p\u001b", "enc": "AAAA"}],
        "azure_kv": [{"vault_url": "https://a.vault.azure.net/", "name": "k", "version": "1", "enc": "AAAA"}],
        "pgp": [{"fp": "1"}], "lastmodified": "", "mac": "", "version": "3.10.2"}}"#;
    let refused = select("db.json", file, &["password"]).await.unwrap_err();
    assert_eq!(
        refused,
        "cannot be decrypted by this job; its recipients: awskms:arn:aws:kms:eu-central-1:1:key/a, \
         vault-transit:STORE/transit/team, gcpkms:projects/p\\u{1b}, \
         azurekv:https://a.vault.azure.net/keys/k, pgp"
    );
}

#[tokio::test]
async fn the_version_of_a_file_is_its_digest_and_needs_no_key() {
    let version = async |text: &str| {
        let store = SopsStore::new(Arc::new(OneFile(text.to_owned())), None, Vec::new());
        let query = SecretQuery {
            path: "db.yaml".to_owned(),
            version: None,
        };
        let version = store.version(&query, SecretRights::Versions).await;
        version.unwrap().unwrap()
    };
    let (one, two) = (version("a: 1\n").await, version("a: 2\n").await);
    assert!(one.starts_with(FILE_VERSION) && one != two, "{one} {two}");
    assert_eq!(one, version("a: 1\n").await);
}

/// A line that is no identity may be a comment, or a key of another kind.
#[test]
fn identities_are_read_line_by_line() {
    let text = format!(
        "# created: 2026\n\n{}\nssh-ed25519 AAAA\n",
        fixture("identity.txt")
    );
    let store = SopsStore::new(Arc::new(OneFile(String::new())), Some(&text), Vec::new());
    assert_eq!(store.identities.len(), 1);
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
    let sops = |arguments: &[&str]| {
        let mut command = std::process::Command::new(konverge_testkit::executable("sops", "sops"));
        command.args(arguments).current_dir(&folder);
        command.env("SOPS_AGE_KEY", key).env("HOME", folder.path());
        let output = command.output().expect("sops can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
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
        let file = sops(&["encrypt", "--age", recipient, name]);
        std::fs::write(folder.path().join(name), &file).unwrap();
        let clear = sops(&["decrypt", "--output-type", "json", name]);
        holds(name, &file, &serde_json::from_str(&clear).unwrap()).await;
    }
}
