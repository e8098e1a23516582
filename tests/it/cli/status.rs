//! `konverge status`: what is recorded, what the head wants, and how what is there is doing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
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
