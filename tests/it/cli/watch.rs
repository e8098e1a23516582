//! `konverge watch`: what each save changes, while it runs. And `konverge affected --diff`, which compares once.

use std::{path::Path, process::Command, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    git::Repository,
    kcl,
    objects::Objects,
    process::{Konverge, binary},
    service::Service,
    shop_monorepo::{Shop, resource},
    tiny_monorepo::{monorepo, write_stack},
};

const LIMIT: Duration = Duration::from_secs(120);

/// A watch with the events that it has printed.
struct Watch {
    service: Service,
    home: tempfile::TempDir,
}

impl Watch {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    fn start_with(folder: &Path, arguments: &[&str], env: &[(&str, &Path)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command
            .args(["watch", "--output", "json"])
            .args(arguments)
            .current_dir(folder)
            .env("HOME", home.path())
            .env("KONVERGE_KCL", kcl::interpreter())
            .envs(env.iter().copied());
        let service = Service::start("watch", &command, home.path());
        Self { service, home }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("watch.log")).unwrap()
    }

    fn events(log: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter(|line| line.starts_with("{\"version\":1"));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The first event from the one with this number on for which `is_meant` is true.
    fn event(&mut self, from: usize, is_meant: impl Fn(&Value) -> bool) -> (usize, Value) {
        let log = self.home.path().join("watch.log");
        self.service.wait_until(LIMIT, || {
            let events = Self::events(&log).into_iter().enumerate().skip(from);
            events.into_iter().find(|(_, event)| is_meant(event))
        })
    }
}

fn two_stacks() -> Repository {
    let repository = monorepo();
    write_stack(&repository, "a/dev", "a", "low");
    write_stack(&repository, "b/dev", "b", "low");
    repository.commit("Two stacks");
    repository
}

fn ids(event: &Value) -> Vec<String> {
    let stacks = event["stacks"].as_array().unwrap();
    stacks
        .iter()
        .map(|stack| stack["id"].as_str().unwrap().to_owned())
        .collect()
}

fn updates(event: &Value) -> Vec<u64> {
    let plans = event["plan"].as_array().unwrap();
    plans
        .iter()
        .map(|plan| plan["summary"]["update"].as_u64().unwrap())
        .collect()
}

#[test]
fn each_save_is_an_event_with_the_stacks_and_the_difference_of_their_specs() {
    let repository = two_stacks();
    let mut watch = Watch::start(repository.path(), &[]);
    let (first, start) = watch.event(0, |event| event["event"] == "start");
    assert_eq!((first, ids(&start).len()), (0, 0), "{start}");
    // A file that both read.
    repository.write("base/app.k", "color = \"red\"\n");
    let (at, event) = watch.event(1, |event| !ids(event).is_empty());
    assert_eq!(event["files"], serde_json::json!(["base/app.k"]));
    assert_eq!(ids(&event), ["a/dev", "b/dev"]);
    assert_eq!(updates(&event), [1, 1], "{event}");
    assert_eq!(event["stacks"][0]["why"][0]["kind"], "import", "{event}");
    // A file of one of them: the difference is the one from the base, so it holds both changes.
    let main = repository.read("appops/a/dev/main.k");
    repository.write("appops/a/dev/main.k", main.replace("low", "high"));
    let (at, event) = watch.event(at + 1, |event| !ids(event).is_empty());
    assert_eq!(ids(&event), ["a/dev"]);
    let changes = event["plan"][0]["resources"][0]["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 2, "{event}");
    // What does not compile is an event, and the watch continues.
    repository.write("appops/a/dev/main.k", "resources = = []\n");
    let (at, event) = watch.event(at + 1, |event| !ids(event).is_empty());
    assert_eq!(event["plan"][0]["error"]["kind"], "kcl", "{event}");
    // Everything as at the base.
    repository
        .write("appops/a/dev/main.k", main)
        .write("base/app.k", "color = \"green\"\n");
    let (_, event) = watch.event(at + 1, |event| updates(event).iter().all(|count| *count == 0));
    assert!(event["plan"][0]["error"].is_null(), "{event}");
    // A new stack, in a folder that did not exist.
    write_stack(&repository, "c/dev", "c", "low");
    let (at, event) = watch.event(at + 1, |event| ids(event).contains(&"c/dev".to_owned()));
    let added = event["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|stack| stack["id"] == "c/dev");
    assert_eq!(added.unwrap()["change"], "added");
    std::fs::remove_dir_all(repository.path().join("appops/c")).unwrap();
    watch.event(at, |event| {
        let stacks = event["stacks"].as_array().unwrap();
        stacks
            .iter()
            .any(|stack| stack["id"] == "c/dev" && stack["change"] == "removed")
    });
    // It wrote nothing into the repository.
    assert_eq!(repository.git(["status", "--porcelain"]).trim(), "");
}

#[test]
fn an_unreadable_configuration_is_an_event_and_its_repair_another_one() {
    let repository = two_stacks();
    let mut watch = Watch::start(repository.path(), &["a/dev"]);
    watch.event(0, |event| event["event"] == "start");
    repository.write("konverge.yaml", "version: [1\n");
    let (at, event) = watch.event(1, |event| !event["error"].is_null());
    assert_eq!(event["error"]["file"], "konverge.yaml", "{event}");
    repository.write("konverge.yaml", "version: 1\n");
    watch.event(at + 1, |event| event["error"].is_null());
    // Of the two stacks only the named one is shown.
    repository.write("base/app.k", "color = \"red\"\n");
    let (_, event) = watch.event(at + 1, |event| !ids(event).is_empty());
    assert_eq!(ids(&event), ["a/dev"]);
}

/// The live object differs from what was applied, so the plan starts from a value that no commit has.
#[tokio::test(flavor = "multi_thread")]
async fn with_preview_each_event_has_the_live_plan_and_nothing_is_written() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("watch-preview").await,
        Objects::of(cluster).await,
    );
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        &[("KUBECONFIG", &kubeconfig)],
    );
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": ns}, "data": {"level": "low"}});
    shop.wants("dev", &[resource(&one)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    objects
        .merge(&one, "somebody", &json!({"data": {"level": "drifted"}}))
        .await;
    let state = shop.monorepo.path().join(".git/test-state");
    let env = [("KUBECONFIG", kubeconfig.as_path()), ("XDG_STATE_HOME", &state)];
    let mut watch = Watch::start_with(shop.monorepo.path(), &["--preview"], &env);
    watch.event(0, |event| event["event"] == "start");
    let before = cluster.audit().len();
    shop.monorepo.replace("apps/shop/dev/main.k", "low", "high");
    let (at, event) = watch.event(1, |event| !ids(event).is_empty());
    let plan = &event["plan"][0];
    assert_eq!(
        (&plan["basis"], updates(&event)),
        (&json!("live"), vec![1]),
        "{event}"
    );
    let change = &plan["resources"][0]["changes"][0];
    assert_eq!(
        (&change["from"], &change["to"]),
        (&json!("drifted"), &json!("high")),
        "{event}"
    );
    // What cannot be planned is an error of its stack, and the watch continues.
    let kept = std::fs::read(&kubeconfig).unwrap();
    std::fs::remove_file(&kubeconfig).unwrap();
    shop.monorepo.replace("apps/shop/dev/main.k", "high", "higher");
    let (at, _) = watch.event(at + 1, |event| !event["plan"][0]["error"].is_null());
    std::fs::write(&kubeconfig, kept).unwrap();
    shop.monorepo.replace("apps/shop/dev/main.k", "higher", "highest");
    watch.event(at + 1, |event| updates(event) == [1]);
    let path = format!("/namespaces/{ns}/configmaps");
    let audit = cluster.audit();
    let writes = audit[before..].iter().filter(|event| {
        let is_read = matches!(event.verb.as_str(), "get" | "list" | "watch");
        event.uri.contains(&path) && !is_read && !event.uri.contains("dryRun=All")
    });
    assert_eq!(writes.count(), 0);
}

#[test]
fn a_repository_that_is_removed_ends_the_watch_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let repository = two_stacks();
    let copy = folder.path().join("copy");
    repository.git(["clone", "--quiet", ".", copy.to_str().unwrap()]);
    let mut watch = Watch::start(&copy, &["--base", "HEAD"]);
    watch.event(0, |event| event["event"] == "start");
    std::fs::remove_dir_all(&copy).unwrap();
    let log = watch.home.path().join("watch.log");
    let ended = || {
        std::fs::read_to_string(&log)
            .ok()
            .filter(|text| text.contains("error: "))
    };
    // It ends by itself, so its log is read and its state is not asked for.
    let started = std::time::Instant::now();
    while ended().is_none() {
        assert!(started.elapsed() < LIMIT, "{}", watch.log());
        std::thread::yield_now();
    }
    let said = watch.log();
    assert!(
        said.contains("was removed while it was watched") && said.contains("hint: "),
        "{said}"
    );
}

#[test]
fn a_name_that_is_no_stack_is_an_error_at_the_start() {
    let repository = two_stacks();
    let outcome = Konverge::new(["watch", "a/dve"])
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(64);
    assert!(
        outcome.stderr.contains("did you mean `a/dev`?"),
        "{}",
        outcome.stderr
    );
    Konverge::new(["watch", "--shard", "1/2"])
        .dir(repository.path())
        .run()
        .expect(64);
}

/// The file is as it was at the start, so no file differs; the error must not be what is seen last.
#[test]
fn a_mended_configuration_is_an_event() {
    let repository = two_stacks();
    repository
        .write("konverge.yaml", "version: 1\n")
        .commit("Konverge");
    let mut watch = Watch::start(repository.path(), &[]);
    let (start, _) = watch.event(0, |_| true);
    repository.write("konverge.yaml", "version: [\n");
    let (broken, _) = watch.event(start + 1, |event| event["error"].is_object());
    repository.write("konverge.yaml", "version: 1\n");
    let (_, mended) = watch.event(broken + 1, |event| event["error"].is_null());
    assert!(ids(&mended).is_empty(), "{mended}");
}

#[test]
fn affected_diff_shows_how_specs_differ_without_a_cluster_or_a_store() {
    let repository = two_stacks();
    // A store that cannot be reached, and a cluster that does not exist.
    repository
        .write(
            "konverge.yaml",
            "state: {url: 's3://nowhere/at-all'}\nclusters: {dev: {context: nowhere}}\nstacks: [{match: '**', cluster: dev}]\n",
        )
        .commit("A store");
    repository
        .branch("change")
        .write("base/app.k", "color = \"red\"\n")
        .commit("Red");
    let run = |arguments: &[&str]| Konverge::new(arguments).dir(repository.path()).with_kcl().run();
    let outcome = run(&["affected", "--diff"]).expect(0);
    for part in ["2 stacks affected.", "-  color: green", "+  color: red"] {
        assert!(outcome.stdout.contains(part), "{part}\n{}", outcome.stdout);
    }
    repository.write("base/app.k", "color = = 1\n").commit("Broken");
    let outcome = run(&["affected", "--diff"]).expect(1);
    assert!(outcome.stdout.contains("base/app.k"), "{}", outcome.stdout);
    run(&["affected", "--diff", "--output=json"]).expect(64);
}
