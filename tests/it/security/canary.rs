//! A value of a secret store after a kill at any request, and after a rollback.

use konverge::store::{Key, StoreOptions};
use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage, everything_in},
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    git::Repository,
    minio::Minio,
    objects::Objects,
    process::{Konverge, Outcome},
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
};

/// In every value of a store.
const CANARY: &str = "c4nary-Wf3k!Jd";

/// The beginning of the base64 of a value that starts with the canary.
const ENCODED: &str = "YzRuYXJ5LVdmM2shSm";

fn secret(namespace: &str, annotation: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "pay", "namespace": namespace, "annotations": {"note": annotation}},
        "stringData": {"password": "ref+env://PAY_PASSWORD", "url": "postgres://app:ref+env://PAY_PASSWORD+@db"},
    })
}

fn holds_no_value(texts: &[&str], what: &str) {
    for text in texts {
        for word in [CANARY, ENCODED] {
            assert!(!text.contains(word), "{what} leaves {word}:\n{text}");
        }
    }
}

struct Killed {
    shop: Shop,
    scratch: tempfile::TempDir,
}

impl Killed {
    fn konverge(&self, arguments: &[&str]) -> Konverge {
        self.shop
            .konverge(arguments)
            .env("TMPDIR", self.scratch.path())
            .env("KONVERGE_LOG", "trace")
            .env("PAY_PASSWORD", format!("{CANARY}-1"))
    }

    fn left_no_value(&self, what: &str) {
        let state = self.shop.monorepo.path().join(".git/test-state");
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        holds_no_value(&[&state, &walk(self.scratch.path())], what);
    }

    fn ended(&self, outcome: &Outcome, what: &str) {
        holds_no_value(&[&outcome.stdout, &outcome.stderr], what);
        self.left_no_value(what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_in_no_journal_after_a_kill_and_in_no_state_after_a_rollback() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("canary").await;
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let config = "state: {lease: {term: 2s}}\nclusters: {test: {}}\nsecrets: {stores: {job: {kind: env, allow: [{stacks: '**', paths: 'PAY_*'}]}}}\n";
    let killed = Killed {
        shop: Shop::new(config, &[("KUBECONFIG", proxy.kubeconfig().as_path())]),
        scratch: tempfile::tempdir().unwrap(),
    };
    killed.shop.wants("prod", &[resource(&secret(&namespace, "one"))]);
    let apply = ["apply", "--all", "--yes", "--output", "json"];
    let (objects, mut kills) = (Objects::of(cluster).await, 0);
    // The answers of the last requests are those with the value in them.
    for before in [true, false] {
        for nth in 1.. {
            proxy.kill_at(nth, before);
            let running = killed.konverge(&apply).start();
            let pid = running.pid();
            let ended = tokio::task::spawn_blocking(move || running.wait());
            let outcome = tokio::select! {
                () = proxy.killed() => {
                    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
                    nix::sys::signal::kill(pid, SIGKILL).unwrap();
                    kills += 1;
                    None
                }
                outcome = ended => Some(outcome.unwrap()),
            };
            killed.left_no_value(&format!("a kill at request {nth}"));
            if let Some(outcome) = outcome {
                killed.ended(&outcome.expect(0), "an apply after kills");
                break;
            }
        }
        objects.delete(&secret(&namespace, "one")).await;
    }
    assert!(kills > 6, "it was killed {kills} times");

    proxy.calm();
    killed.ended(&killed.konverge(&apply).run().expect(0), "an apply");
    let history = killed.konverge(&["state", "history", "shop/prod", "--output", "json"]);
    let serial = history.run().expect(0).json()["serials"][0]["serial"].to_string();
    killed.shop.wants("prod", &[resource(&secret(&namespace, "two"))]);
    killed.ended(&killed.konverge(&apply).run().expect(0), "an update");
    let rollback = [
        "state",
        "rollback",
        "shop/prod",
        "--to",
        &serial,
        "--output",
        "json",
    ];
    killed.ended(
        &killed.konverge(&rollback).run().expect(0),
        "the plan of a rollback",
    );
    let rolled_back = killed
        .konverge(&[&rollback[..], &["--yes"]].concat())
        .run()
        .expect(0);
    killed.ended(&rolled_back, "a rollback");
    let live = objects.get(&secret(&namespace, "")).await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["note"], "one");
    let live = live["data"]["password"].as_str().unwrap();
    assert!(
        live.starts_with(ENCODED),
        "the value is in the object alone: {live}"
    );
}

/// Everything in the bucket of a stage.
async fn bucket(stage: &Stage) -> String {
    let minio = Minio::shared();
    let url = format!(
        "s3://{}/konverge?endpoint={}&allow_http=true&path_style=true&region={}",
        stage.bucket,
        minio.endpoint(),
        Minio::REGION
    );
    let environment = [
        ("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = StoreOptions {
        environment: environment.into_iter().collect(),
        ..StoreOptions::default()
    };
    let store = konverge::store::open(&url, &options).await.unwrap();
    let mut text = String::new();
    for key in store.list(&Key::from_components(&[])).await.unwrap() {
        let bytes = store.get(&key).await.unwrap().unwrap_or_default();
        text += &format!("{key} {}\n", String::from_utf8_lossy(&bytes));
    }
    assert!(text.contains("stacks/"), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_in_no_comment_page_summary_or_bucket() {
    let monorepo = Repository::konfig_example();
    monorepo.git(["rm", "-rq", "appops"]);
    let more = "secrets: {stores: {job: {kind: env, allow: [{stacks: 'apps/shop/*', paths: 'PAY_*'}]}}}\n";
    let mut stage = Stage::with("canary", monorepo, more).await;
    stage.env.push(("KONVERGE_LOG", "trace".to_owned()));
    stage.env.push(("PAY_PASSWORD", format!("{CANARY}-1")));
    let namespace = stage.cluster.namespace("canary-ci").await;
    let check = async |stage: &Stage, ran: &Ran, what: &str| {
        let comments: String = stage.comments().into_iter().map(|(_, text)| text).collect();
        assert!(comments.contains("pay"), "{comments}");
        let files = everything_in(&ran.folder);
        let told = [
            &ran.outcome.stdout,
            &ran.outcome.stderr,
            &ran.summary,
            &ran.outputs,
        ];
        let told = told.map(String::as_str);
        holds_no_value(&told, what);
        holds_no_value(&[&comments, &files, &bucket(stage).await], what);
    };
    let propose = |stage: &Stage, branch: &str, object: &Value| {
        stage.propose(branch, |monorepo| {
            monorepo
                .write("apps/shop/project.yaml", "name: shop\n")
                .write("apps/shop/prod/stack.yaml", "name: prod\n")
                .write("apps/shop/prod/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n")
                .write(
                    "apps/shop/prod/main.k",
                    format!("resources = {}\n", json!([resource(object)])),
                );
        });
    };
    propose(&stage, "add-pay", &secret(&namespace, "one"));
    let previewed = stage.pull_request(21, "add-pay", "opened");
    previewed.outcome.check(0);
    assert!(
        everything_in(&previewed.folder).contains("<html"),
        "there is a page"
    );
    let merged = stage.merge(21, "add-pay");
    merged.outcome.check(0);
    check(&stage, &merged, "the apply of a merge").await;

    // The value rotated, the stack changes, and somebody wrote another value.
    stage.env.retain(|(name, _)| *name != "PAY_PASSWORD");
    stage.env.push(("PAY_PASSWORD", format!("{CANARY}-2")));
    let theirs = json!({"stringData": {"password": format!("{CANARY}-theirs")}});
    let objects = Objects::of(stage.cluster).await;
    objects
        .merge(&secret(&namespace, "one"), "somebody", &theirs)
        .await;
    propose(&stage, "edit-pay", &secret(&namespace, "two"));
    let previewed = stage.pull_request(22, "edit-pay", "opened");
    previewed.outcome.check(0);
    check(&stage, &previewed, "a preview over a live value").await;
    let merged = stage.merge(22, "edit-pay");
    check(&stage, &merged, "the apply of a rotated value").await;
    let drifted = stage.schedule();
    check(&stage, &drifted, "a drift job").await;
}
