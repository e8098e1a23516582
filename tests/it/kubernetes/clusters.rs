//! Stacks on two real control planes: each goes where its rule says, a resource where its extension says, in the order
//! of `after`, and a failure on the first cluster holds back what comes after it on the second.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    shop_monorepo::{Shop, resource},
};

const CONFIG: &str = "version: 1
clusters:
  east: {kubeconfig_env: EAST}
  west: {kubeconfig_env: WEST}
stacks:
- {match: 'apps/shop/east', cluster: east}
- {match: 'apps/shop/west', cluster: west, after: ['apps/shop/east']}
";

fn config_map(ns: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"name": name}})
}

/// A ConfigMap with the extension `cluster`.
fn placed(object: &Value, cluster: &str) -> Value {
    let mut resource = resource(object);
    resource["extensions"] = json!({"cluster": cluster});
    resource
}

fn ended(east: &str, west: &str) -> Vec<(String, String)> {
    let row = |stack: &str, result: &str| (format!("shop/{stack}"), result.to_owned());
    vec![row("east", east), row("west", west)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_on_one_cluster_holds_back_what_comes_after_it_on_another() {
    let (east, west) = (Cluster::shared(), Cluster::with_controllers());
    let names = (east.namespace("east").await, west.namespace("west").await);
    let (of_east, of_west) = (Objects::of(east).await, Objects::of(west).await);
    let (at_east, at_west) = (east.kubeconfig(), west.kubeconfig());
    let shop = Shop::new(CONFIG, &[("EAST", &at_east), ("WEST", &at_west)]);
    let apply = |code| shop.ends(&["apply", "--all"], code);
    let first = config_map(&names.0, "first");
    let abroad = config_map(&names.1, "abroad");
    let second = config_map(&names.1, "second");
    let nowhere = config_map("a-namespace-that-is-not-there", "nowhere");
    shop.wants("west", &[resource(&second)]);
    shop.wants(
        "east",
        &[resource(&first), placed(&abroad, "west"), resource(&nowhere)],
    );
    assert_eq!(apply(1), ended("failed", "held-back"));
    assert!(
        of_east.get(&first).await.is_some(),
        "an independent branch continues"
    );
    assert!(of_west.get(&abroad).await.is_some());
    assert!(of_west.get(&second).await.is_none());

    // After the fix, each object is on its own cluster and on no other.
    shop.wants("east", &[resource(&first), placed(&abroad, "west")]);
    let started = of_west.get(&abroad).await.unwrap();
    assert_eq!(apply(0), ended("unchanged", "applied"));
    assert!(of_west.get(&second).await.is_some());
    assert_eq!(
        of_west.get(&abroad).await.unwrap(),
        started,
        "nothing to do for it"
    );
    let elsewhere = [
        of_west.get(&config_map(&names.0, "first")).await,
        of_east.get(&config_map(&names.1, "abroad")).await,
        of_east.get(&config_map(&names.1, "second")).await,
    ];
    assert!(elsewhere.iter().all(Option::is_none), "{elsewhere:?}");
    assert_eq!(apply(0), ended("unchanged", "unchanged"));

    // Removed from the Spec: it is deleted from the cluster that the state recorded.
    shop.wants("east", &[resource(&first)]);
    assert_eq!(apply(0), ended("applied", "unchanged"));
    assert!(of_west.get(&abroad).await.is_none());

    // A cluster that is not defined is named, with those that are.
    shop.wants("east", &[placed(&first, "north")]);
    let unknown = shop.run(&["apply", "--all", "--yes"]).expect(1);
    let said = unknown.stdout + &unknown.stderr;
    assert!(said.contains("there is no cluster `north`"), "{said}");
    assert!(said.contains("skipped"), "{said}");
}
