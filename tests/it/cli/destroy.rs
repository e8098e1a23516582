//! `konverge destroy`: every stack that was named, those first that come last, and nobody else's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    process::Konverge,
    service::eventually,
    shop_monorepo::{Shop, resource},
    spec_runs::SpecRuns,
};

const CONFIG: &str = "version: 1
clusters: {test: {}}
stacks:
- {match: 'apps/shop/second', after: ['apps/shop/first']}
";

fn config_map(ns: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"name": name}})
}

/// The names of what was deleted in a namespace, in order.
fn deleted(cluster: &Cluster, ns: &str) -> Vec<String> {
    let deletes = cluster.audit().into_iter();
    deletes
        .filter(|event| event.verb == "delete" && event.is_in(ns))
        .filter_map(|event| event.object_ref.map(|object| object.name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_last_goes_first() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("destroy").await, Objects::of(cluster).await);
    let shop = Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())]);
    let (base, user) = (config_map(&ns, "base"), config_map(&ns, "user"));
    let bystander = config_map(&ns, "bystander");
    objects.create(&bystander).await;
    shop.wants("first", &[resource(&base)]);
    shop.wants("second", &[resource(&user)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);

    // Nobody is there to agree, so nothing happens.
    let refused = shop.run(&["destroy", "shop/first"]).expect(64);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert!(objects.get(&base).await.is_some());
    let unknown = shop.run(&["destroy", "shop/frist", "--yes"]).expect(64);
    assert!(unknown.stderr.contains("shop/frist"), "{}", unknown.stderr);

    let ended = shop.ends(&["destroy", "shop/first", "shop/second"], 0);
    let row = |stack: &str| (stack.to_owned(), "applied".to_owned());
    assert_eq!(ended, [row("shop/first"), row("shop/second")]);
    assert_eq!(deleted(cluster, &ns), ["user", "base"]);
    assert!(objects.get(&bystander).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_that_share_a_folder_all_go() {
    let runs = SpecRuns::on_s3("destroy-shared", "").await;
    runs.repository
        .write("kcl.mod", "[package]\nname = \"shared\"\n")
        .commit("KCL");
    runs.spec("a.json", &["one"]);
    runs.spec("b.json", &["two"]);
    let well = |run: Konverge| run.run().expect(0);
    well(runs.apply("a.json", "col/a"));
    well(runs.apply("b.json", "col/b"));
    assert_eq!(runs.made_by_anybody().await.len(), 2);
    well(runs.on_cluster(&["destroy", "col/a", "col/b", "--yes"]));
    assert!(runs.made_by_anybody().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_has_become_empty_deletes_only_with_consent() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("emptied").await, Objects::of(cluster).await);
    let shop = Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())]);
    let map = config_map(&ns, "only");
    shop.wants("first", &[resource(&map)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);

    shop.wants("first", &[]);
    let refused = shop.run(&["apply", "--all", "--yes"]).expect(3);
    let said = refused.stdout + &refused.stderr;
    assert!(
        said.contains("is empty") && said.contains("--allow-empty"),
        "{said}"
    );
    assert!(objects.get(&map).await.is_some());
    shop.run(&["apply", "--all", "--yes", "--allow-empty"]).expect(0);
    assert!(objects.get(&map).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_an_object_is_said_once() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("held").await, Objects::of(cluster).await);
    let shop = Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())]);
    let map = config_map(&ns, "held");
    shop.wants("first", &[resource(&map)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let hold = async |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        objects.merge(&map, "controller", &patch).await;
    };
    // Each question after the deletion is one more chance to say the same again.
    let asked_again = async |times: usize| {
        let asked = || {
            cluster
                .audit()
                .iter()
                .filter(|event| event.verb == "get" && event.is_in(&ns))
                .count()
        };
        let before = asked();
        eventually("it is asked about again", Duration::from_secs(60), || async {
            (asked() >= before + times).then_some(())
        })
        .await;
    };
    hold(json!(["example.com/one", "example.com/two"])).await;
    let running = shop.konverge(&["destroy", "shop/first", "--yes"]).start();
    eventually("the deletion is asked for", Duration::from_secs(60), || async {
        (!deleted(cluster, &ns).is_empty()).then_some(())
    })
    .await;
    asked_again(7).await;
    hold(json!(["example.com/two"])).await;
    asked_again(3).await;
    hold(json!([])).await;
    let ended = running.wait().expect(0);
    for holders in ["example.com/one, example.com/two\n", "example.com/two\n"] {
        let said = format!("waiting until it is gone, held by its finalizers: {holders}");
        assert_eq!(ended.stderr.matches(&said).count(), 1, "{}", ended.stderr);
    }
}
