//! What commands say where it is easily said wrongly: what was never applied, what stays, what cannot be planned.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    shop_monorepo::{Shop, resource},
};

const CONFIG: &str = "version: 1\nclusters: {test: {}}\n";

fn shop(cluster: &Cluster) -> Shop {
    Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())])
}

fn config_map(ns: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"value": "recorded"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_goes_from_recorded_to_live_and_names_who_wrote_it() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("drift-said").await, Objects::of(cluster).await);
    let shop = shop(cluster);
    let [edited, gone, same] = ["edited", "gone", "same"].map(|name| config_map(&ns, name));
    shop.wants("dev", &[resource(&edited), resource(&gone), resource(&same)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    shop.wants("new", &[resource(&config_map(&ns, "new"))]);
    objects
        .merge(&edited, "kubectl-edit", &json!({"data": {"value": "live"}}))
        .await;
    objects.delete(&gone).await;

    let found = shop.run(&["drift", "--exit-code"]).expect(2).stdout;
    let time = objects.get(&edited).await.unwrap()["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "kubectl-edit")
        .map(|entry| entry["time"].as_str().unwrap().to_owned())
        .unwrap();
    let lines: Vec<_> = found.lines().map(str::trim).collect();
    for line in [
        "shop/dev: 1 changed, 1 missing, 1 as applied",
        &format!("note: `kubectl-edit` wrote /data/value at {time}"),
        "-  value: recorded",
        "+  value: live",
        &format!("- missing v1 ConfigMap {ns}/gone"),
        "shop/dev  1 changed, 1 missing",
        "shop/new  never applied",
        "2 stacks: 1 drifted, 1 never applied.",
    ] {
        assert!(lines.contains(&line), "{line:?} in\n{found}");
    }
    let json = shop.run(&["drift", "--output", "json"]).expect(0).json();
    assert_eq!(json["stacks"][1]["basis"], "never-applied", "{json}");
    assert_eq!(json["stacks"][0]["summary"]["unchanged"], 1, "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_that_only_forgets_says_that_objects_stay() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("stays-said").await, Objects::of(cluster).await);
    let shop = shop(cluster);
    let mut kept = config_map(&ns, "kept");
    kept["metadata"]["annotations"] = json!({"konverge/keep": "true"});
    shop.wants("dev", &[resource(&kept)]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let said = shop.run(&["destroy", "shop/dev", "--yes"]).expect(0).stdout;
    for words in [
        "1 resource forgotten: live objects were not deleted",
        "stays: its annotation `konverge/keep`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(objects.get(&kept).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_could_be_planned_nobody_is_asked() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("not-asked").await;
    let shop = shop(cluster);
    let mut refused = config_map(&ns, "refused");
    refused["data"] = json!({"value": {"not": "text"}});
    shop.wants("dev", &[resource(&refused)]);
    let outcome = shop.run(&["apply", "shop/dev"]).expect(1);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(!said.contains("--yes") && !said.contains("Type `yes`"), "{said}");
    assert!(outcome.stdout.contains("shop/dev: "), "{said}");
    // Where there is something to do, `--yes` is the advice.
    shop.wants("dev", &[resource(&config_map(&ns, "taken"))]);
    let asked = shop.run(&["apply", "shop/dev"]).expect(64).stderr;
    assert!(asked.contains("--yes"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_with_nothing_to_do_writes_no_serial() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("no-serial").await;
    let shop = shop(cluster);
    shop.wants("dev", &[resource(&config_map(&ns, "one"))]);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let serials = || {
        let history = shop
            .run(&["state", "history", "shop/dev", "--output", "json"])
            .expect(0);
        history.json()["serials"].as_array().unwrap().len()
    };
    assert_eq!(serials(), 1);
    for nth in 0..2 {
        shop.monorepo.write("README.md", format!("Commit {nth}\n"));
        shop.monorepo.commit("Nothing of a stack");
        shop.run(&["apply", "--all", "--yes"]).expect(0);
    }
    assert_eq!(serials(), 1);
}

/// Applied stacks of which no cluster is known any more: what keeps them from being looked at is said once.
#[tokio::test(flavor = "multi_thread")]
async fn drift_without_a_cluster_says_once_why_no_stack_can_be_looked_at() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("drift-nowhere").await;
    let shop = shop(cluster);
    for stack in ["dev", "prod"] {
        shop.wants(stack, &[resource(&config_map(&ns, stack))]);
    }
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    shop.monorepo.write("konverge.yaml", "version: 1\n");
    let outcome = shop.run(&["drift"]).expect(1);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(said.matches("no cluster is configured").count(), 1, "{said}");
    assert!(said.contains("shop/dev, shop/prod"), "{said}");
}

/// What policy sets get as their input: whole resources before and after, as the published schema says, and no secret.
#[tokio::test(flavor = "multi_thread")]
async fn the_plan_document_is_as_its_schema_says() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("plan-document").await;
    let shop = shop(cluster);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": ns}, "stringData": {"password": "correct-horse-battery"}});
    let same = config_map(&ns, "same");
    shop.wants(
        "dev",
        &[
            resource(&same),
            resource(&secret),
            resource(&config_map(&ns, "edited")),
            resource(&config_map(&ns, "gone")),
        ],
    );
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    let mut edited = config_map(&ns, "edited");
    edited["data"]["value"] = json!("wanted");
    let map = format!("v1:ConfigMap:{ns}:edited");
    let reads = json!({"id": format!("v1:ConfigMap:{ns}:reads"), "type": "Kubernetes", "attributes":
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "reads", "namespace": ns}, "data": {"uid": format!("$kusion_path.{map}.metadata.resourceVersion")}}});
    shop.wants(
        "dev",
        &[resource(&same), resource(&secret), resource(&edited), reads],
    );

    let printed = shop.run(&["preview", "--all", "--output", "plan"]).expect(0);
    let document = printed.json();
    let schema = shop.run(&["__reference", "plan"]).expect(0).json();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}: {document}");
    assert!(!printed.stdout.contains("correct-horse"), "{document}");

    let resources = document["stacks"][0]["resources"].as_array().unwrap();
    let of = |name: &str| {
        let found = resources
            .iter()
            .find(|resource| resource["id"].as_str().unwrap().ends_with(&format!(":{name}")));
        found.unwrap_or_else(|| panic!("no {name}: {document}")).clone()
    };
    assert_eq!(of("same")["action"], "unchanged");
    assert_eq!(of("same")["after"]["data"]["value"], "recorded");
    assert_eq!(of("edited")["action"], "update");
    assert_eq!(of("edited")["before"]["data"]["value"], "recorded");
    assert_eq!(of("edited")["after"]["data"]["value"], "wanted");
    assert_eq!(of("gone")["action"], "delete");
    assert_eq!(of("gone")["after"], Value::Null);
    assert_eq!(of("gone")["kind"], "ConfigMap");
    assert_eq!(of("gone")["before"]["data"]["value"], "recorded");
    assert_eq!(of("reads")["action"], "create");
    assert_eq!(of("reads")["unknown"], json!(["/data/uid"]));
    let key = of("key");
    assert_eq!(key["action"], "unchanged");
    let paths = key["secret"].as_array().unwrap();
    assert_eq!(paths.len(), 1, "{key}");
}
