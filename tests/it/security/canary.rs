//! The values of secret stores of every kind: after previews, applies, a kill at any request, drift, a rollback and the
//! end of the stack they are in nothing that runs print or leave.

use std::path::Path;

use konverge_state::store::{Key, StoreOptions};
use nix::sys::signal::Signal::SIGKILL;
use serde_json::json;

use super::canary_stores::{CanaryStores, holds_no_value};
use crate::support::{
    ci_stage::{Ran, Stage, everything_in},
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
    s3::S3,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
};

struct Killed {
    shop: Shop,
    stores: CanaryStores,
    scratch: tempfile::TempDir,
}

impl Killed {
    async fn new(cluster: &Cluster, namespace: &str, kubeconfig: &Path) -> Self {
        let shop = Shop::new("version: 1\n", &[("KUBECONFIG", kubeconfig)]);
        let stores = CanaryStores::start(cluster, namespace, &shop.monorepo).await;
        let config = format!(
            "state: {{lease: {{term: 2s}}}}\nclusters: {{test: {{}}}}\n{}",
            stores.config()
        );
        shop.monorepo.write("konverge.yaml", config);
        Self {
            shop,
            stores,
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs an apply until it is to be killed. Returns false if it ended by itself.
    async fn apply_until(&self, killed: impl Future<Output = ()>, what: &str) -> bool {
        let running = self
            .konverge(&["apply", "--all", "--yes", "--output", "json"])
            .start();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid()).unwrap());
        let mut ended = tokio::task::spawn_blocking(move || running.wait());
        let (outcome, is_killed) = tokio::select! {
            () = killed => {
                nix::sys::signal::kill(pid, SIGKILL).unwrap();
                (ended.await.unwrap(), true)
            }
            outcome = &mut ended => (outcome.unwrap(), false),
        };
        self.ended(&outcome, what);
        if !is_killed {
            outcome.expect(0);
        }
        is_killed
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        let run = self
            .shop
            .konverge(arguments)
            .env("TMPDIR", self.scratch.path())
            .env("XDG_CACHE_HOME", self.scratch.path().join("caches"))
            .env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "of-the-job")
            .env("KONVERGE_LOG", "trace");
        let variables = self.stores.job(1).into_iter();
        variables.fold(run, |run, (name, value)| run.env(name, value))
    }

    fn wants(&self, note: &str) {
        self.shop.wants("prod", &[resource(&self.stores.secret(note))]);
    }

    fn ended(&self, outcome: &Outcome, what: &str) {
        let state = self.shop.monorepo.path().join(".git/test-state");
        // A preview alone leaves none.
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        let left = walk(self.scratch.path());
        holds_no_value(&[&outcome.stdout, &outcome.stderr, &state, &left], what);
    }

    fn run(&self, arguments: &[&str], code: i32) -> Outcome {
        let outcome = self.konverge(arguments).run().expect(code);
        self.ended(&outcome, &arguments.join(" "));
        outcome
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_no_store_is_left_by_a_kill_a_rollback_or_the_end_of_its_stack() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("canary").await;
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let killed = Killed::new(cluster, &namespace, &proxy.kubeconfig()).await;
    killed.wants("one");
    let pay = killed.stores.secret("");
    let preview = ["preview", "--all", "--live", "required", "--output", "json"];
    let previewed = killed.run(&preview, 0);
    assert!(
        previewed.stdout.contains("google:acme/pay"),
        "{}",
        previewed.stdout
    );

    let apply = ["apply", "--all", "--yes", "--output", "json"];
    let (objects, mut kills) = (Objects::of(cluster).await, 0);
    // The answers of the last requests are those with the value in them.
    for before in [true, false] {
        for nth in 1.. {
            proxy.kill_at(nth, before);
            let what = format!("an apply that ends at request {nth}");
            if !killed.apply_until(proxy.killed(), &what).await {
                break;
            }
            kills += 1;
        }
        killed.stores.are_written(cluster, 1).await;
        objects.delete(&pay).await;
    }
    assert!(kills > 6, "it was killed {kills} times");

    proxy.calm();
    killed.run(&apply, 0);
    let history = killed.run(&["state", "history", "shop/prod", "--output", "json"], 0);
    let serial = history.json()["serials"][0]["serial"].to_string();
    killed.wants("two");
    killed.run(&apply, 0);
    let theirs = json!({"stringData": {"job": "of-somebody"}});
    objects.merge(&pay, "somebody", &theirs).await;
    let drifted = killed.run(&["drift", "--output", "json"], 0);
    assert!(drifted.stdout.contains("/data/job"), "{}", drifted.stdout);
    let rollback = [
        "state",
        "rollback",
        "shop/prod",
        "--to",
        &serial,
        "--output",
        "json",
    ];
    // It shows its plan and asks.
    killed.run(&rollback, 64);
    killed.run(&[&rollback[..], &["--yes"]].concat(), 0);
    let live = objects.get(&pay).await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["note"], "one");
    killed.stores.are_written(cluster, 1).await;
    killed.run(&["destroy", "shop/prod", "--yes", "--output", "json"], 0);
    assert_eq!(objects.get(&pay).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_a_request_to_a_store_leaves_no_value() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("canary-reads").await;
    let killed = Killed::new(cluster, &namespace, &cluster.kubeconfig()).await;
    killed.wants("one");
    let (pay, objects, mut kills) = (killed.stores.secret(""), Objects::of(cluster).await, 0);
    for before in [true, false] {
        for nth in 1.. {
            killed.stores.relays.kill_at(nth, before);
            let what = format!("an apply that ends at request {nth} to a store");
            if !killed.apply_until(killed.stores.relays.killed(), &what).await {
                break;
            }
            kills += 1;
            assert_eq!(
                objects.get(&pay).await,
                None,
                "values are read before anything is written"
            );
        }
        killed.stores.are_written(cluster, 1).await;
        objects.delete(&pay).await;
    }
    assert!(kills >= 16, "it was killed {kills} times");
}

/// Everything in the bucket of a stage.
async fn bucket(stage: &Stage) -> String {
    let server = S3::shared();
    let url = format!(
        "s3://{}/konverge?endpoint={}&allow_http=true&path_style=true&region={}",
        stage.bucket,
        server.endpoint(),
        S3::REGION
    );
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = StoreOptions {
        environment: environment.into_iter().collect(),
        ..StoreOptions::default()
    };
    let store = konverge_state::store::open(&url, &options).await.unwrap();
    let mut text = String::new();
    for key in store.list(&Key::from_components(&[])).await.unwrap() {
        let bytes = store.get(&key).await.unwrap().unwrap_or_default();
        text += &format!("{key} {}\n", String::from_utf8_lossy(&bytes));
    }
    assert!(text.contains("stacks/"), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_no_store_is_in_a_comment_a_page_a_summary_or_the_bucket() {
    let monorepo = Repository::konfig_example();
    monorepo.git(["rm", "-rq", "appops"]);
    let cluster = Cluster::with_controllers();
    let namespace = cluster.namespace("canary-ci").await;
    let stores = CanaryStores::start(cluster, &namespace, &monorepo).await;
    let mut stage = Stage::with("canary", monorepo, &stores.config()).await;
    let job = |stage: &mut Stage, version| {
        stage.env = stores.job(version);
        stage.env.push(("KONVERGE_LOG", "trace".to_owned()));
    };
    let check = async |stage: &Stage, ran: &Ran, what: &str| {
        let comments: String = stage.comments().into_iter().map(|(_, text)| text).collect();
        assert!(comments.contains("pay"), "{comments}");
        let files = everything_in(&ran.folder);
        let caches = ran.folder.join("caches");
        let caches = if caches.is_dir() {
            walk(&caches)
        } else {
            String::new()
        };
        let told = [
            &ran.outcome.stdout,
            &ran.outcome.stderr,
            &ran.summary,
            &ran.outputs,
        ];
        let told = told.map(String::as_str);
        holds_no_value(&told, what);
        holds_no_value(&[&comments, &files, &caches, &bucket(stage).await], what);
    };
    let propose = |stage: &Stage, branch: &str, note: &str, file: &str| {
        let object = stores.secret(note);
        stage.propose(branch, |monorepo| {
            monorepo
                .write("secrets/db.yaml", file)
                .write("apps/shop/project.yaml", "name: shop\n")
                .write("apps/shop/prod/stack.yaml", "name: prod\n")
                .write("apps/shop/prod/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n")
                .write(
                    "apps/shop/prod/main.k",
                    format!("resources = {}\n", json!([resource(&object)])),
                );
        });
    };
    job(&mut stage, 1);
    let file = stage.monorepo.read("secrets/db.yaml");
    propose(&stage, "add-pay", "one", &file);
    let previewed = stage.pull_request(21, "add-pay", "opened");
    previewed.outcome.check(0);
    assert!(
        everything_in(&previewed.folder).contains("<html"),
        "there is a page"
    );
    let merged = stage.merge(21, "add-pay");
    merged.outcome.check(0);
    check(&stage, &merged, "the apply of a merge").await;
    stores.are_written(cluster, 1).await;

    // Every value rotated, the stack changes, and somebody wrote another value.
    stage.monorepo.checkout("main");
    stores.rotate(cluster, &stage.monorepo).await;
    let file = stage.monorepo.read("secrets/db.yaml");
    stage.monorepo.git(["checkout", "-q", "--", "secrets"]);
    job(&mut stage, 2);
    let theirs = json!({"stringData": {"job": "c4nary-Env!Jd-theirs"}});
    let objects = Objects::of(cluster).await;
    objects.merge(&stores.secret(""), "somebody", &theirs).await;
    propose(&stage, "edit-pay", "two", &file);
    let previewed = stage.pull_request(22, "edit-pay", "opened");
    previewed.outcome.check(0);
    check(&stage, &previewed, "a preview over a live value").await;
    let merged = stage.merge(22, "edit-pay");
    check(&stage, &merged, "the apply of rotated values").await;
    let drifted = stage.schedule();
    check(&stage, &drifted, "a drift job").await;
}
