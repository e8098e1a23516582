//! Kusion and Konverge apply a stack by turns. Kusion's side reads and writes its releases strictly by the documented
//! types, with the YAML library of Kusion (the part `kusion-release`).

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use konverge_base::model::state::KusionRelease;
use konverge_state::{
    kusion_releases::Releases,
    store::{Key, StoreOptions, open_foreign},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    cluster::Cluster,
    executable,
    file_server::{FileServer, Manners},
    gcs::Gcs,
    objects::Objects,
    process::Outcome,
    random::{Random, setting},
    s3::S3,
    shop_monorepo::{Shop, resource},
};

/// A value that must not stand in a release of Konverge's.
const PASSWORD: &str = "aHVudGVyMjIy";

/// What never becomes ready fails an apply after this time.
const READY_SOON: &str = "apply: {ready_timeout: 2s}\n";

struct Turns {
    shop: Shop,
    backend: TempDir,
    objects: Objects,
    namespace: String,
}

impl Turns {
    async fn new(subject: &str, more: &str) -> Self {
        let cluster = Cluster::shared();
        let backend = tempfile::tempdir().unwrap();
        let config = format!(
            "version: 1\nclusters: {{test: {{}}}}\nstate: {{kusion_releases: 'file://{}', lease: {{term: 3s}}}}\n{more}",
            backend.path().display()
        );
        Self {
            shop: Shop::new(&config, &[("KUBECONFIG", &cluster.kubeconfig())]),
            backend,
            objects: Objects::of(cluster).await,
            namespace: cluster.namespace(subject).await,
        }
    }

    fn folder(&self) -> PathBuf {
        self.backend.path().join("releases/shop/dev")
    }

    /// Kusion: its answer, or what it refuses.
    fn kusion(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(executable("kusion-release", "kusion-release"))
            .arg(arguments[0])
            .arg(self.folder())
            .args(&arguments[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    fn begins(&self) -> Result<String, String> {
        self.kusion(&["begin", "shop", "dev", "dev"], "")
    }

    /// The newest release, as Kusion reads it.
    fn newest(&self) -> Value {
        serde_json::from_str(&self.kusion(&["check"], "").unwrap()).unwrap()
    }

    fn config_map(&self, number: u64) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": self.namespace},
            "data": {"number": number.to_string(), "day": "2024-01-01", "mode": "0777", "yes": "yes", "text": "a: b\n# c\n"}})
    }

    fn resources(&self, number: u64) -> Vec<Value> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": self.namespace},
            "data": {"password": PASSWORD}});
        vec![resource(&self.config_map(number)), resource(&secret)]
    }

    /// Nobody makes its pods, so it never becomes ready.
    fn deployment(&self, name: &str) -> Value {
        let labels = json!({"app": name});
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]}}}})
    }

    /// An apply that writes the objects and fails, because one does not become ready: its release has failed, which is
    /// no lock, and says what is there.
    async fn fails(&self, number: u64) {
        let deployment = self.deployment("stuck");
        let mut resources = self.resources(number);
        resources.push(resource(&deployment));
        self.shop.wants("dev", &resources);
        self.shop.run(&["apply", "shop/dev", "--yes"]).expect(1);
        let newest = self.newest();
        assert_eq!(newest["phase"], "failed", "{newest:#}");
        let state = newest["state"]["resources"].as_array().unwrap();
        let has = |kind: &str| state.iter().any(|one| one["id"].to_string().contains(kind));
        assert!(has("ConfigMap"), "{newest:#}");
        assert_eq!(self.live().await, number.to_string());
    }

    fn wants(&self, number: u64) {
        self.shop.wants("dev", &self.resources(number));
    }

    /// Kusion applies: its release, and the object.
    async fn kusion_applies(&self, number: u64) {
        self.begins().unwrap();
        for object in self.resources(number) {
            let object = &object["attributes"];
            match self.objects.get(object).await {
                Some(_) => {
                    self.objects
                        .merge(object, "kusion", &json!({"data": object["data"]}))
                        .await
                }
                None => self.objects.create_as(object, "kusion").await,
            }
        }
        self.ends(number);
    }

    fn ends(&self, number: u64) {
        let resources = json!(self.resources(number)).to_string();
        self.kusion(&["end", "succeeded"], &resources).unwrap();
    }

    fn imports(&self) -> Outcome {
        let folder = self.folder();
        self.shop
            .run(&["state", "import", folder.to_str().unwrap(), "--stack", "shop/dev"])
            .expect(0)
    }

    fn applies(&self) -> Outcome {
        self.shop.run(&["apply", "shop/dev", "--yes", "--no-wait"])
    }

    fn refused(&self, words: &str) {
        let outcome = self.applies();
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.code != Some(0) && said.contains(words), "{said}");
    }

    async fn live(&self) -> String {
        let object = self.objects.get(&self.config_map(0)).await.unwrap();
        object["data"]["number"].as_str().unwrap().to_owned()
    }

    /// What Kusion reads after an apply of Konverge's.
    async fn released(&self, revision: u64, number: u64) {
        let newest = self.newest();
        assert_eq!(
            (&newest["revision"], &newest["phase"]),
            (&json!(revision), &json!("succeeded"))
        );
        for part in ["spec", "state"] {
            let mut resources = newest[part]["resources"].as_array().unwrap().clone();
            resources.sort_by_key(|resource| resource["id"].to_string());
            let wanted = self.resources(number);
            assert_eq!(resources[0]["id"], wanted[0]["id"], "{newest:#}");
            // Dates, octal numbers and booleans stay texts.
            assert_eq!(
                resources[0]["attributes"]["data"], wanted[0]["attributes"]["data"],
                "{part}"
            );
            assert_eq!(resources[1]["id"], wanted[1]["id"]);
            assert_eq!(resources[1]["attributes"]["data"]["password"], "KHNlY3JldCk=");
        }
        // The kubeconfig that Kusion's destroy needs.
        assert_eq!(
            newest["spec"]["context"]["KUBECONFIG_PATH"],
            "/home/me/.kube/config"
        );
        let text = std::fs::read_to_string(self.folder().join(format!("{revision}.yaml"))).unwrap();
        assert!(!text.contains(PASSWORD) && !text.contains("$secret"), "{text}");
        assert_eq!(self.live().await, number.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kusion_and_konverge_apply_by_turns() {
    let turns = Turns::new("release-turns", READY_SOON).await;
    let seed = setting("KONVERGE_TEST_SEED", 20_261_123);
    println!("KONVERGE_TEST_SEED={seed}");
    let mut dice = Random::of(seed);
    turns.wants(0);
    turns.kusion_applies(0).await;
    turns.imports();
    let (mut revision, mut number, mut known) = (1, 0, true);
    for _ in 0..setting("KONVERGE_TEST_TURNS", 7) {
        if dice.once_in(2) {
            // Kusion's turn: while it is at work, and after that, Konverge changes nothing.
            number += 1;
            turns.wants(number);
            turns.begins().unwrap();
            turns.refused("is in the phase `generating`");
            revision += 1;
            let stuck = turns.deployment("stuck");
            if turns.objects.get(&stuck).await.is_some() {
                turns.objects.delete(&stuck).await;
            }
            let map = turns.config_map(number);
            turns
                .objects
                .merge(&map, "kusion", &json!({"data": map["data"]}))
                .await;
            turns.ends(number);
            turns.refused("somebody applied with Kusion since");
            let preview = turns.shop.run(&["preview", "shop/dev"]).expect(0);
            assert!(
                preview.stderr.contains("an apply of shop/dev would stop"),
                "{}",
                preview.stderr
            );
            known = false;
        } else {
            if !known {
                turns.imports();
                known = true;
            }
            if dice.once_in(3) {
                number += 1;
                turns.fails(number).await;
                revision += 1;
                assert_eq!(turns.newest()["revision"], revision);
                continue;
            }
            let is_new = dice.once_in(3);
            number += u64::from(!is_new);
            turns.wants(number);
            turns.applies().expect(0);
            let found = turns.newest()["revision"].as_u64().unwrap();
            assert!(
                found == revision + 1 || (is_new && found == revision),
                "{found} after {revision}"
            );
            let wrote = found > revision;
            revision = found;
            if wrote {
                turns.released(revision, number).await;
            }
            // With nothing to do there is no release.
            turns.applies().expect(0);
            assert_eq!(turns.newest()["revision"], revision);
        }
    }
    if !known {
        turns.imports();
    }
    turns.wants(1000);
    turns.applies().expect(0);
    turns.released(revision + 1, 1000).await;
    // A destroy is a release without resources, and Kusion begins the next one.
    turns.shop.run(&["destroy", "shop/dev", "--yes"]).expect(0);
    let newest = turns.newest();
    assert_eq!(
        (&newest["phase"], &newest["state"]["resources"]),
        (&json!("succeeded"), &json!([]))
    );
    turns.begins().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_apply_holds_kusion_back_until_the_next_one_ends_its_release() {
    let turns = Turns::new("release-killed", "").await;
    turns.wants(0);
    turns.kusion_applies(0).await;
    turns.imports();
    for (round, before_the_metadata) in [false, true].into_iter().enumerate() {
        let revision = round as u64 + 2;
        // Nobody makes its pods, so the apply waits for it.
        let deployment = turns.deployment(&format!("web-{round}"));
        let mut resources = turns.resources(revision);
        resources.push(resource(&deployment));
        turns.shop.wants("dev", &resources);
        let metadata = turns.folder().join(".metadata.yml");
        let earlier = std::fs::read(&metadata).unwrap();
        let run = turns.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
        let started = Instant::now();
        while turns.objects.get(&deployment).await.is_none() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the Deployment was not made"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let begun = turns.newest();
        assert_eq!(
            (&begun["revision"], &begun["phase"]),
            (&json!(revision), &json!("applying"))
        );
        assert!(turns.begins().unwrap_err().contains("in progress"));
        run.signal(Signal::SIGKILL);
        run.wait();
        if before_the_metadata {
            // As if it had been killed in between.
            std::fs::write(&metadata, earlier).unwrap();
        } else {
            assert!(turns.begins().unwrap_err().contains("in progress"));
        }
        turns.applies().expect(0);
        let newest = turns.newest();
        assert_eq!(
            (&newest["revision"], &newest["phase"]),
            (&json!(revision), &json!("succeeded"))
        );
        let ids = newest["state"]["resources"].as_array().unwrap().iter();
        assert!(
            ids.clone().any(|one| one["id"] == resource(&deployment)["id"]),
            "{newest:#}"
        );
    }
    turns.begins().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kusion_unlocked_or_keeps_for_another_stack_is_not_overwritten() {
    let turns = Turns::new("release-others", "").await;
    turns.wants(0);
    turns.kusion_applies(0).await;
    turns.imports();
    turns.wants(1);
    turns.applies().expect(0);
    // `kusion release unlock` writes the newest release again.
    turns.ends(0);
    turns.refused("the newest release is 2");
    // The way that the refusal names: the release of Kusion is taken over.
    turns.imports();
    turns.applies().expect(0);
    turns.released(3, 1).await;
    std::fs::remove_file(turns.folder().join(".metadata.yml")).unwrap();
    turns.kusion(&["begin", "shop", "dev", "prod"], "").unwrap();
    turns.ends(0);
    turns.refused("is of the stack `prod`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_with_a_terraform_resource_is_not_applied_by_turns() {
    let turns = Turns::new("release-terraform", "").await;
    turns.wants(0);
    turns.kusion_applies(0).await;
    turns.imports();
    let mut resources = turns.resources(1);
    resources.push(json!({"id": "terraform:builtin:terraform_data:size", "type": "Terraform", "attributes": {"input": "large"}}));
    turns.shop.wants("dev", &resources);
    turns.refused("`terraform:builtin:terraform_data:size` is a Terraform resource");
    assert_eq!(turns.newest()["revision"], 1);
    assert_eq!(turns.live().await, "0");
}

/// A backend without the release that a state follows is another one: Kusion's lock is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_has_no_release_is_refused() {
    let turns = Turns::new("release-elsewhere", "").await;
    turns.wants(0);
    turns.kusion_applies(0).await;
    turns.imports();
    std::fs::rename(
        turns.backend.path().join("releases"),
        turns.backend.path().join("moved"),
    )
    .unwrap();
    turns.wants(1);
    turns.refused("has no release, and the state of `shop/dev` follows release 1");
    assert_eq!(turns.live().await, "0");
    assert!(!turns.backend.path().join("releases").exists());
}

/// The layout of each object store: begun, seen as a lock, ended.
async fn in_objects(url: &str, environment: &[(&str, &str)]) {
    let variables = environment.iter();
    let options = StoreOptions {
        environment: variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..StoreOptions::default()
    };
    let store = open_foreign(url, &options).await.unwrap();
    let put = |name: &str, text: &str| {
        let (store, key, text) = (
            store.clone(),
            Key::from_listing(format!("releases/shop/dev/{name}")),
            text.to_owned(),
        );
        async move { store.create(&key, Bytes::from(text)).await.unwrap() }
    };
    put("1.yaml", "project: shop\nworkspace: dev\nrevision: 1\nstack: dev\nphase: succeeded\nstate:\n    resources: []\n").await;
    put(
        ".metadata.yml",
        "latestRevision: 1\nreleaseMetaDatas:\n    - revision: 1\n      stack: dev\n",
    )
    .await;
    let releases = Releases::new(store.clone(), "shop", "dev");
    let newest = releases.newest().await.unwrap().unwrap();
    let next = KusionRelease {
        project: "shop".to_owned(),
        workspace: "dev".to_owned(),
        stack: "dev".to_owned(),
        revision: 2,
        mark: Some("run-1".to_owned()),
    };
    let begun = releases
        .begin(&next, "applying", Some(&newest), None)
        .await
        .unwrap();
    let lock = releases.newest().await.unwrap().unwrap();
    assert_eq!(
        (lock.release.revision, lock.release.under_way.as_deref()),
        (2, Some("applying"))
    );
    // Somebody else who saw release 1 comes too late.
    let other = KusionRelease {
        mark: Some("run-2".to_owned()),
        ..next.clone()
    };
    assert!(
        releases
            .begin(&other, "applying", Some(&newest), None)
            .await
            .is_err()
    );
    releases.end(begun, "succeeded", &[], &[]).await.unwrap();
    let ended = releases.newest().await.unwrap().unwrap();
    assert_eq!((ended.release.revision, ended.release.under_way), (2, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_in_s3() {
    let server = S3::shared();
    let bucket = server.bucket("releases");
    let url = format!(
        "s3://{bucket}/kusion?endpoint={}&allow_http=true",
        server.endpoint()
    );
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
        ("AWS_REGION", S3::REGION),
    ];
    in_objects(&url, &environment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_in_oss() {
    let server = FileServer::start(Manners::Oss).await;
    let url = format!(
        "oss://{}/kusion?region=cn-hangzhou&endpoint={}&allow_http=true",
        FileServer::BUCKET,
        server.url
    );
    let environment = [
        ("OSS_ACCESS_KEY_ID", FileServer::KEY_ID),
        ("OSS_ACCESS_KEY_SECRET", FileServer::KEY_SECRET),
    ];
    in_objects(&url, &environment).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn releases_in_google() {
    let server = Gcs::start();
    let bucket = server.bucket("releases").await;
    let account = server.service_account();
    let url = format!(
        "gs://{bucket}/kusion?endpoint={}&allow_http=true",
        server.endpoint()
    );
    in_objects(&url, &[("GOOGLE_SERVICE_ACCOUNT_KEY", &account)]).await;
}
