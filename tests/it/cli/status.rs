//! `konverge status`: what is recorded, what the head wants, and how what is there is doing.

use std::time::Duration;

use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    objects::{Objects, path},
    service::eventually,
    shop_monorepo::{Shop, resource},
    stack::id,
};

const CONFIG: &str = "version: 1\nclusters: {test: {}}\napply: {ready_timeout: 60s}\n";

fn shop(cluster: &Cluster) -> Shop {
    Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())])
}

fn status(shop: &Shop) -> Vec<Value> {
    let status = shop.run(&["status", "--output", "json"]).expect(0).json();
    assert_eq!(status["version"], 1);
    status["stacks"].as_array().unwrap().clone()
}

fn config_map(ns: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"value": value}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_from_its_first_apply_to_its_removal() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("status").await, Objects::of(cluster).await);
    let shop = shop(cluster);
    let (one, two) = (config_map(&ns, "one", "1"), config_map(&ns, "two", "1"));
    shop.wants("dev", &[resource(&one), resource(&two)]);
    let new = &status(&shop)[0];
    assert_eq!((&new["id"], &new["head"]), (&json!("shop/dev"), &json!("new")));
    assert!(
        new.get("applied").is_none() && new.get("objects").is_none(),
        "{new}"
    );

    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let commit = shop.monorepo.rev("HEAD");
    let applied = &status(&shop)[0];
    assert_eq!(applied["head"], "applied");
    assert_eq!(applied["applied"]["serial"], 1, "{applied}");
    assert_eq!(applied["resources"], 2);
    let ready = json!({"id": id(&one), "cluster": "test", "health": "ready", "message": ""});
    assert_eq!(applied["objects"][0], ready);
    shop.run(&["status", "--exit-code"]).expect(0);

    // Behind the head, and with something that is gone.
    shop.wants("dev", &[resource(&one), resource(&config_map(&ns, "two", "2"))]);
    objects.delete(&one).await;
    let behind = shop.run(&["status", "shop/dev", "--exit-code"]).expect(2);
    for words in [
        "changes pending",
        "shop/dev (apps/shop/dev)",
        "serial 1, 2 resources",
        "1 ready, 1 failed",
        "it is not there",
    ] {
        assert!(behind.stdout.contains(words), "{words}: {}", behind.stdout);
    }
    let offline = shop
        .run(&["status", "--live", "never", "--output", "json"])
        .expect(0)
        .json();
    assert!(offline["stacks"][0].get("objects").is_none(), "{offline}");

    // An apply of a commit that ends half-way.
    shop.wants(
        "dev",
        &[
            resource(&one),
            resource(&config_map("status-nowhere", "two", "2")),
        ],
    );
    shop.run(&["apply", "--all", "--yes", "--rev", "HEAD"]).expect(1);
    assert_eq!(status(&shop)[0]["head"], "unfinished");
    shop.wants("dev", &[resource(&one)]);
    shop.run(&["apply", "--all", "--yes", "--rev", "HEAD"]).expect(0);
    let recorded = status(&shop)[0]["applied"]["commit"].clone();
    assert_eq!(recorded, shop.monorepo.rev("HEAD"));
    assert_ne!(recorded, commit);

    // Gone from the repository, but not from the state.
    shop.monorepo.remove("apps/shop/dev").commit("No dev");
    let removed = &status(&shop)[0];
    assert_eq!(
        (&removed["id"], &removed["head"]),
        (&json!("shop/dev"), &json!("removed"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_what_changes_until_nothing_is_under_way() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("status-watch").await,
        Objects::of(cluster).await,
    );
    let shop = shop(cluster);
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "a:1"}]}}}});
    shop.wants("dev", &[resource(&web)]);
    shop.run(&["apply", "--all", "--yes", "--no-wait"]).expect(0);
    let listed = format!("/namespaces/{ns}/deployments");
    let looks = || {
        let audit = cluster.audit();
        let is_look = |event: &&crate::support::cluster::AuditEvent| {
            event.uri.contains(&listed) && event.verb != "patch"
        };
        audit.iter().filter(is_look).count()
    };
    let before = looks();
    let watching = shop.konverge(&["status", "--watch", "--exit-code"]).start();
    // It has looked once: then the controller says that all is well.
    eventually("it has looked", Duration::from_secs(60), || async {
        (looks() > before).then_some(())
    })
    .await;
    let condition =
        |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": ""});
    let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")]});
    objects.report(&path(&web, true), &status).await;
    let outcome = watching.wait().expect(0);
    let lines: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("Deployment"))
        .collect();
    assert!(lines[0].contains("progressing: "), "{lines:?}");
    assert!(lines.last().unwrap().contains("ready"), "{lines:?}");
    assert_eq!(outcome.stdout, "1 stack: 1 applied and ready, 0 not.\n");
    // By its name a stack is shown that is well, too.
    let named = shop.run(&["status", "shop/dev"]).expect(0).stdout;
    assert!(named.contains("up to date"), "{named}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_stack_is_no_failure_and_one_never_applied_leaves_no_trace() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("status-destroyed").await;
    let shop = shop(cluster);
    shop.wants("dev", &[resource(&config_map(&ns, "one", "1"))]);
    shop.run(&["destroy", "shop/dev", "--yes"]).expect(0);
    assert_eq!(status(&shop)[0]["head"], "new");
    shop.run(&["state", "history", "shop/dev"]).expect(64);

    // The working tree is what is committed: that commit is recorded, and can be gone back to.
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    assert_eq!(status(&shop)[0]["applied"]["commit"], shop.monorepo.rev("HEAD"));
    let folder = shop.monorepo.path().join("apps/shop/dev/extra.k");
    std::fs::write(&folder, "b = 1\n").unwrap();
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    std::fs::remove_file(&folder).unwrap();
    shop.run(&["state", "rollback", "shop/dev", "--to", "1", "--yes"])
        .expect(0);

    shop.run(&["destroy", "shop/dev", "--yes"]).expect(0);
    let destroyed = &status(&shop)[0];
    assert_eq!(destroyed["head"], "destroyed", "{destroyed}");
    assert_eq!(destroyed["applied"]["reason"], "destroy", "{destroyed}");
    let text = shop.run(&["status"]).expect(0).stdout;
    assert!(text.contains("shop/dev  destroyed"), "{text}");
    let history = shop.run(&["state", "history", "shop/dev"]).expect(0).stdout;
    let reasons: Vec<_> = history
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|word| ["apply", "rollback", "destroy"].contains(word))
        .collect();
    assert_eq!(reasons.first(), Some(&"destroy"), "{history}");
    assert_eq!(reasons.last(), Some(&"apply"), "{history}");
    // Destroyed twice is destroyed once.
    let serial = destroyed["applied"]["serial"].clone();
    shop.run(&["destroy", "shop/dev", "--yes"]).expect(0);
    assert_eq!(status(&shop)[0]["applied"]["serial"], serial);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    assert_eq!(status(&shop)[0]["head"], "applied");
}

/// A Spec that suspends is as it must be; whoever suspends by hand is not the Spec.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_spec_suspends_is_ready_and_what_somebody_suspends_is_not() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("status-suspended").await,
        Objects::of(cluster).await,
    );
    let shop = shop(cluster);
    let cron_job = |suspend: bool| {
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "night", "namespace": ns}, "spec": {
            "schedule": "0 3 * * *", "suspend": suspend, "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/night:1"}]}}}}}})
    };
    shop.wants("dev", &[resource(&cron_job(true))]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let told = shop.run(&["status", "--exit-code"]).expect(0);
    assert!(
        told.stdout.contains("1 applied and ready, 0 not"),
        "{}",
        told.stdout
    );
    let object = &status(&shop)[0]["objects"][0];
    assert_eq!(
        (&object["health"], &object["suspendedBySpec"]),
        (&json!("suspended"), &json!(true))
    );

    shop.wants("dev", &[resource(&cron_job(false))]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    objects
        .merge(&cron_job(false), "kubectl", &json!({"spec": {"suspend": true}}))
        .await;
    let told = shop.run(&["status", "--exit-code"]).expect(2);
    assert!(
        told.stdout.contains("0 applied and ready, 1 not"),
        "{}",
        told.stdout
    );
}

/// What `status` and the portal say of `shop/dev`.
fn says(shop: &Shop, words: &str, condition: &str) {
    let found = &status(shop)[0];
    assert_eq!(found["conditions"][0], condition, "{found}");
    let row = shop.run(&["status"]).expect(0).stdout;
    assert!(row.contains(words), "{words}: {row}");
    let pages = tempfile::tempdir().unwrap();
    let out = pages.path().join("pages");
    shop.run(&["portal", "build", "--out", out.to_str().unwrap()])
        .expect(0);
    let overview = std::fs::read_to_string(out.join("index.html")).unwrap();
    let (_, row) = overview.split_once("shop/dev").unwrap();
    assert!(row.contains(words), "{words}: {row}");
}

/// A run dies in the middle; the next ones are stopped by a freeze, and fail. The last one is what counts, for both.
#[tokio::test(flavor = "multi_thread")]
async fn status_and_portal_say_the_same_of_what_came_after_a_kill() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("status-killed").await;
    let config = format!("{CONFIG}state: {{lease: {{term: 2s, wait: 60s}}}}\n");
    let shop = Shop::new(&config, &[("KUBECONFIG", &cluster.kubeconfig())]);
    shop.wants("dev", &[resource(&config_map(&ns, "one", "1"))]);
    let apply = ["apply", "--all", "--yes", "--rev", "HEAD"];
    shop.run(&apply).expect(0);
    shop.wants(
        "dev",
        &[
            resource(&config_map(&ns, "one", "2")),
            resource(&config_map(&ns, "two", "2")),
        ],
    );
    let proxy = Proxy::start(cluster, Faults::none()).await;
    proxy.kill_at_write(1);
    let running = shop
        .konverge(&apply)
        .env("KUBECONFIG", proxy.kubeconfig())
        .start();
    proxy.killed().await;
    running.signal(SIGKILL);
    assert_eq!(running.wait().code, None);
    says(&shop, "running or interrupted", "open");

    shop.run(&["freeze", "--reason", "the fair"]).expect(0);
    let frozen = shop.run(&["status", "--output", "json"]).expect(0).json();
    assert_eq!(frozen["freeze"]["reason"], "the fair", "{frozen}");
    assert!(frozen["freeze"]["since"].is_string(), "{frozen}");
    shop.run(&apply).expect(3);
    says(&shop, "last apply stopped", "stopped");
    shop.run(&["unfreeze", "--reason", "it is over"]).expect(0);
    let calm = shop.run(&["status", "--output", "json"]).expect(0).json();
    assert!(calm.get("freeze").is_none(), "{calm}");

    shop.wants(
        "dev",
        &[resource(&config_map("status-killed-nowhere", "two", "2"))],
    );
    shop.run(&apply).expect(1);
    says(&shop, "last apply failed", "failed");
    shop.wants("dev", &[resource(&config_map(&ns, "one", "3"))]);
    shop.run(&apply).expect(0);
    assert_eq!(status(&shop)[0]["conditions"], json!(["applied"]));
}

/// Nothing was tried of a stack that was imported.
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_stack_has_not_failed() {
    let cluster = Cluster::shared();
    let shop = shop(cluster);
    shop.wants("dev", &[resource(&config_map("default", "imported", "1"))]);
    let state = json!({"id": 1, "project": "shop", "stack": "dev", "version": 1, "kusionVersion": "0.9.0", "serial": 7,
        "operator": "", "createTime": "2024-01-01T00:00:00Z", "modifiedTime": "2024-01-01T00:00:00Z",
        "resources": [resource(&config_map("default", "imported", "1"))]});
    let file = shop.monorepo.path().join(".git/kusion_state.json");
    std::fs::write(&file, state.to_string()).unwrap();
    let file = file.to_str().unwrap();
    shop.run(&["state", "import", file, "--stack", "shop/dev"])
        .expect(0);
    let imported = &status(&shop)[0];
    assert_eq!(imported["applied"]["reason"], "import", "{imported}");
    assert_eq!(imported["head"], "changed", "{imported}");
    says(&shop, "changes pending", "pending");
}
