//! `konverge test --live`: on a cluster, in throw-away namespaces, and nothing is left.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
};

/// Where namespaces are listed.
const NAMESPACES: &str = "/api/v1/namespaces";

struct Shop {
    repository: Repository,
    kubeconfig: PathBuf,
}

impl Shop {
    /// A stack with a ConfigMap whose text is an option, in a namespace of its own.
    fn new(config: &str, kubeconfig: PathBuf, namespace: &str) -> Self {
        let repository = Repository::init();
        let program = format!(
            "_text = option(\"text\") or \"first\"\nresources = [\n  {{id = \"v1:ConfigMap:{namespace}:web\", type = \"Kubernetes\", attributes = \
             {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"web\", namespace = \"{namespace}\"}}, data = {{text = _text}}}}}}\n  \
             {{id = \"v1:Secret:{namespace}:login\", type = \"Kubernetes\", attributes = \
             {{apiVersion = \"v1\", kind = \"Secret\", metadata = {{name = \"login\", namespace = \"{namespace}\"}}, stringData = {{word = \"correct-horse\"}}}}}}\n]\n"
        );
        repository
            .write("konverge.yaml", config)
            .write("kcl.mod", "[package]\nname = \"shop\"\n")
            .write("apps/shop/project.yaml", "name: shop\n")
            .write("apps/shop/dev/stack.yaml", "name: dev\n")
            .write("apps/shop/dev/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n")
            .write("apps/shop/dev/main.k", program)
            .commit("A shop");
        Self {
            repository,
            kubeconfig,
        }
    }

    fn test(&self, name: &str, steps: &str) {
        let text = format!("name: {name}\nsteps:\n{steps}");
        self.repository
            .write(&format!("apps/shop/dev/test/{name}.test.yaml"), text)
            .commit(name);
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        Konverge::new(arguments)
            .with_kcl()
            .dir(self.repository.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("XDG_STATE_HOME", self.repository.path().join(".git/test-state"))
    }

    /// The documents of live tests that the store holds.
    fn left_in_store(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        files(&self.repository.path().join(".git/test-state"), &mut left);
        left.retain(|path| path.components().any(|part| part.as_os_str() == "tests"));
        left
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found)
        } else {
            found.push(entry.path())
        }
    }
}

/// The namespaces of live tests whose name begins so.
async fn left_in_cluster(objects: &Objects, namespace: &str) -> Vec<String> {
    let labelled = objects.labelled(NAMESPACES, "konverge/test").await;
    let names = labelled.iter().filter_map(|one| one["metadata"]["name"].as_str());
    names
        .filter(|name| name.starts_with(namespace))
        .map(str::to_owned)
        .collect()
}

fn results(outcome: &Outcome) -> Vec<Value> {
    let tests = outcome.json()["tests"].as_array().cloned().unwrap_or_default();
    let told = |test: &Value| {
        let first = &test["failures"][0];
        json!([test["name"], test["result"], first["line"], first["message"]])
    };
    tests.iter().map(told).collect()
}

const CONFIG: &str = "version: 1\nclusters: {test: {tests: true}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_live_test_applies_changes_asserts_and_leaves_nothing() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let shop = Shop::new(CONFIG, cluster.kubeconfig(), "live-one");
    shop.test(
        "good",
        "- apply: {}\n\
         - assert: [{kind: ConfigMap, name: web, namespace: live-one, has: {data: {text: first}}}, {kind: Secret}]\n\
         - change: {options: {text: second}}\n\
         - wait: {seconds: 30, assert: [{kind: ConfigMap, has: {data: {text: second}}}]}\n\
         - delete: {}\n\
         - assert: [{absent: {kind: ConfigMap}}]\n",
    );
    shop.test(
        "bad",
        "- apply: {}\n- assert: [{kind: ConfigMap, has: {data: {text: third}}}]\n",
    );
    // Without `--live` they are only read.
    let offline = shop.konverge(&["test", "shop/dev", "--output=json"]).run();
    assert_eq!(results(&offline), Vec::<Value>::new(), "{}", offline.stderr);
    let outcome = shop
        .konverge(&["test", "shop/dev", "--live", "--output=json"])
        .run()
        .expect(1);
    let expected = [
        json!([
            "bad",
            "failed",
            4,
            "no ConfigMap has these fields; the nearest differs"
        ]),
        json!(["good", "passed", null, null]),
    ];
    assert_eq!(results(&outcome), expected, "{}", outcome.stderr);
    assert!(!outcome.stdout.contains("correct-horse"), "{}", outcome.stdout);
    assert_eq!(left_in_cluster(&objects, "live-one").await, Vec::<String>::new());
    assert_eq!(shop.left_in_store(), Vec::<PathBuf>::new());
    // The stack itself was never there.
    assert!(
        objects
            .list("/api/v1/namespaces/live-one/configmaps")
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_made_is_refused_before_anything_is() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        cluster.kubeconfig(),
        "live-two",
    );
    shop.test("one", "- apply: {}\n- assert: [{kind: ConfigMap}]\n");
    let refused = shop.konverge(&["test", "shop/dev", "--live"]).run().expect(1);
    assert!(refused.stderr.contains("`tests: true`"), "{}", refused.stderr);
    // The pull request alone cannot allow it.
    shop.repository
        .branch("change")
        .write("konverge.yaml", CONFIG)
        .commit("Allow tests");
    let refused = shop.konverge(&["test", "shop/dev", "--live"]).run().expect(1);
    assert!(refused.stderr.contains("`tests: true`"), "{}", refused.stderr);

    let shop = Shop::new(CONFIG, cluster.kubeconfig(), "live-two");
    let program = "resources = [{id = \"v1:PersistentVolume:disk\", type = \"Kubernetes\", attributes = \
        {apiVersion = \"v1\", kind = \"PersistentVolume\", metadata = {name = \"disk\"}, spec = {}}}]\n";
    shop.repository
        .write("apps/shop/dev/main.k", program)
        .commit("A disk");
    shop.test("one", "- apply: {}\n- assert: [{kind: PersistentVolume}]\n");
    let outcome = shop.konverge(&["test", "shop/dev", "--live"]).run().expect(1);
    assert!(
        outcome
            .stdout
            .contains("`v1:PersistentVolume:disk`: a PersistentVolume acts on the whole cluster"),
        "{}",
        outcome.stdout
    );
    assert_eq!(left_in_cluster(&objects, "live-two").await, Vec::<String>::new());

    // A pull request from outside.
    let event = shop.repository.path().join(".git/event.json");
    std::fs::write(&event, "{}").unwrap();
    let outside = shop
        .konverge(&["test", "shop/dev", "--live"])
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_EVENT_NAME", "pull_request_target")
        .env("GITHUB_EVENT_PATH", &event)
        .env("GITHUB_REPOSITORY", "acme/shop")
        .env("GITHUB_SHA", "0123456789012345678901234567890123456789")
        .env("GITHUB_REF", "refs/heads/main")
        .env("GITHUB_ACTOR", "mallory")
        .env("GITHUB_RUN_ID", "1")
        .env("GITHUB_RUN_ATTEMPT", "1")
        .env("GITHUB_WORKFLOW", "test")
        .env("GITHUB_JOB", "test")
        .run();
    assert!(
        outside.stderr.contains("live tests are not run"),
        "{}",
        outside.stderr
    );
    assert_ne!(outside.code, Some(0));
}

/// Two runs of one test at once, and a sweep beside them: each ends well, and finds its own objects alone.
#[tokio::test(flavor = "multi_thread")]
async fn two_runs_side_by_side_never_meet() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let shop = Shop::new(CONFIG, cluster.kubeconfig(), "live-four");
    shop.test(
        "one",
        "- apply: {}\n- change: {options: {text: b}}\n- assert: [{kind: ConfigMap, has: {data: {text: b}}}, {cel: 'size(resources) == 2'}]\n",
    );
    let runs = [(); 2].map(|()| shop.konverge(&["test", "shop/dev", "--live"]).start());
    for run in runs {
        let outcome = tokio::task::spawn_blocking(move || run.wait()).await.unwrap();
        outcome.expect(0);
    }
    shop.konverge(&["test", "--sweep"]).run().expect(0);
    assert_eq!(left_in_cluster(&objects, "live-four").await, Vec::<String>::new());
    assert_eq!(shop.left_in_store(), Vec::<PathBuf>::new());
}

/// Values of the test stand in for a resource of Terraform, and classes move with what names them.
#[tokio::test(flavor = "multi_thread")]
async fn values_replace_terraform_and_classes_move() {
    const DATABASE: &str = "hashicorp:local:local_file:db";
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let shop = Shop::new(CONFIG, cluster.kubeconfig(), "live-five");
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("db");
    let program = format!(
        "resources = [\n  {{id = \"{DATABASE}\", type = \"Terraform\", attributes = {{filename = \"{}\", content = \"x\"}}, \
         extensions = {{provider = \"registry.terraform.io/hashicorp/local/2.5.1\"}}}}\n  \
         {{id = \"scheduling.k8s.io/v1:PriorityClass:live-five\", type = \"Kubernetes\", attributes = \
         {{apiVersion = \"scheduling.k8s.io/v1\", kind = \"PriorityClass\", metadata = {{name = \"live-five\"}}, value = 7, preemptionPolicy = \"Never\"}}}}\n  \
         {{id = \"apps/v1:Deployment:live-five:web\", type = \"Kubernetes\", dependsOn = [\"{DATABASE}\"], attributes = \
         {{apiVersion = \"apps/v1\", kind = \"Deployment\", metadata = {{name = \"web\", namespace = \"live-five\"}}, spec = {{replicas = 0, \
         selector = {{matchLabels = {{app = \"web\"}}}}, template = {{metadata = {{labels = {{app = \"web\"}}}}, spec = {{priorityClassName = \"live-five\", \
         containers = [{{name = \"web\", image = \"web\", env = [{{name = \"DB\", value = \"db://$kusion_path.{DATABASE}.id\"}}]}}]}}}}}}}}}}\n]\n",
        file.display()
    );
    shop.repository
        .write("apps/shop/dev/main.k", program)
        .commit("A database");
    let steps = "- apply: {}\n- assert:\n  - {kind: PriorityClass, name: live-five, has: {value: 7}}\n  \
        - {kind: Deployment, name: web, has: {spec: {template: {spec: {containers: [{name: web, env: [{name: DB, value: 'db://given'}]}]}}}}}\n  \
        - {cel: 'resources.exists(r, r.kind == \"Deployment\" && r.spec.template.spec.priorityClassName.startsWith(\"live-five-\"))'}\n  \
        - {cel: 'size(resources) == 2'}\n";
    let write = |name: &str, with: &str| {
        let text = format!("name: {name}\n{with}steps:\n{steps}");
        shop.repository
            .write(&format!("apps/shop/dev/test/{name}.test.yaml"), text)
            .commit(name);
    };
    write(
        "given",
        &format!("with: {{terraform: {{'{DATABASE}': {{id: given}}}}}}\n"),
    );
    write(
        "lacking",
        &format!("with: {{terraform: {{'{DATABASE}': {{name: x}}}}}}\n"),
    );
    write("without", "");
    let outcome = shop
        .konverge(&["test", "shop/dev", "--live", "--output=json"])
        .run()
        .expect(1);
    let told = results(&outcome);
    assert_eq!(
        told[0],
        json!(["given", "passed", null, null]),
        "{}",
        outcome.stderr
    );
    let lacking = told[1][3].as_str().unwrap();
    assert!(
        lacking.contains(
            "`apps/v1:Deployment:live-five:web`: `hashicorp:local:local_file:db` has nothing at `id`"
        ),
        "{lacking}"
    );
    let without = told[2][3].as_str().unwrap();
    assert!(
        without.contains(&format!("`{DATABASE}`: a Terraform resource")),
        "{without}"
    );
    assert!(!file.exists());
    let classes = objects.list(CLASSES).await;
    assert!(
        classes.iter().all(|class| !class["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("live-five")),
        "{classes:?}"
    );
    assert_eq!(left_in_cluster(&objects, "live-five").await, Vec::<String>::new());
    assert_eq!(shop.left_in_store(), Vec::<PathBuf>::new());
}

/// The live test of the example: its pods start, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn the_live_test_of_the_example_passes() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let example = Repository::konfig_example();
    let config = std::fs::read_to_string(example.path().join("konverge.yaml")).unwrap();
    example
        .write(
            "konverge.yaml",
            format!("{config}\nclusters: {{testing: {{tests: true}}}}\n"),
        )
        .commit("A cluster that allows tests");
    let tested = Konverge::new(["test", "storefront/dev", "--live", "--output=json"])
        .with_kcl()
        .dir(example.path())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("XDG_STATE_HOME", example.path().join(".git/test-state"))
        .run()
        .expect(0);
    let name = "the development shop becomes ready, and leaves nothing";
    assert_eq!(
        results(&tested),
        [json!([name, "passed", null, null])],
        "{}",
        tested.stderr
    );
    // The namespace of the stack has the name of the test behind its own.
    let labelled = objects.labelled(NAMESPACES, "konverge/test").await;
    let is_left = |one: &Value| {
        one["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .starts_with("storefront-dev-")
    };
    assert!(!labelled.iter().any(is_left), "{labelled:?}");
}

/// The number of tests that are killed before each sweep.
const KILLED_AT_ONCE: u64 = 4;

/// Killed at any request of a test: one sweep later nothing is left. The requests differ from run to run.
#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_one_sweep_cleans_up() {
    const STEP: u64 = 9;
    let seed = std::env::var("KONVERGE_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("KONVERGE_SEED={seed}");
    kill_and_sweep("live-three", 1 + seed % STEP, STEP).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "more than a hundred runs: `make test-all` runs it"]
async fn killed_at_every_request_one_sweep_cleans_up() {
    kill_and_sweep("live-every", 1, 1).await;
}

/// Kills tests at each `step`-th request from `first` on, until they end before it, and sweeps after each few.
async fn kill_and_sweep(namespace: &str, first: u64, step: u64) {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let config = format!("{CONFIG}state: {{lease: {{term: 2s}}}}\n");
    let shop = Shop::new(&config, cluster.kubeconfig(), namespace);
    shop.test(
        "one",
        "- apply: {}\n- assert: [{kind: ConfigMap}]\n- change: {options: {text: b}}\n",
    );
    let mut proxies = Vec::new();
    for _ in 0..KILLED_AT_ONCE {
        proxies.push(Proxy::start(cluster, Faults::none()).await);
    }
    let (mut kills, mut nth) = (0, first);
    loop {
        let requests: Vec<u64> = (0..KILLED_AT_ONCE).map(|at| nth + at * step).collect();
        let runs = requests
            .iter()
            .zip(&proxies)
            .map(|(nth, proxy)| killed_at(&shop, proxy, *nth));
        let killed = futures::future::join_all(runs).await;
        let swept = shop.konverge(&["test", "--sweep"]).run().expect(0);
        let left = left_in_cluster(&objects, namespace).await;
        assert_eq!(
            left,
            Vec::<String>::new(),
            "requests {requests:?}\n{}",
            swept.stderr
        );
        assert_eq!(
            shop.left_in_store(),
            Vec::<PathBuf>::new(),
            "requests {requests:?}\n{}",
            swept.stderr
        );
        kills += killed.iter().filter(|killed| **killed).count();
        if killed.contains(&false) {
            break;
        }
        nth += KILLED_AT_ONCE * step;
    }
    assert!(kills >= 3, "it was killed {kills} times");
}

/// Runs the test, and kills it at a request, every second time before the server has it. False if it ended before.
async fn killed_at(shop: &Shop, proxy: &Proxy, nth: u64) -> bool {
    proxy.kill_at(nth, nth.is_multiple_of(2));
    let running = shop
        .konverge(&["test", "shop/dev", "--live"])
        .env("KUBECONFIG", proxy.kubeconfig())
        .start();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid()).unwrap());
    let waiting = tokio::task::spawn_blocking(move || running.wait());
    tokio::pin!(waiting);
    let was_killed = tokio::select! {
        () = proxy.killed() => {
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
            true
        }
        outcome = &mut waiting => {
            outcome.unwrap().expect(0);
            false
        }
    };
    if was_killed {
        let _ = waiting.await;
    }
    proxy.calm();
    was_killed
}
