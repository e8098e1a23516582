//! Stacks on two real control planes: each goes where its rule says, a resource where its extension says, in the order
//! of `after`, and a failure on the first cluster holds back what comes after it on the second.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
    stack::id,
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

/// A resource as KCL writes it; JSON is KCL.
fn resource(object: &Value, cluster: Option<&str>) -> Value {
    let mut resource = json!({"id": id(object), "type": "Kubernetes", "attributes": object});
    if let Some(cluster) = cluster {
        resource["extensions"] = json!({"cluster": cluster});
    }
    resource
}

struct Shop {
    monorepo: Repository,
    east: &'static Cluster,
    west: &'static Cluster,
}

impl Shop {
    fn wants(&self, stack: &str, resources: &[Value]) {
        let folder = format!("apps/shop/{stack}");
        self.monorepo
            .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
            .write(
                &format!("{folder}/kcl.yaml"),
                "kcl_cli_configs:\n  files: [main.k]\n",
            )
            .write(
                &format!("{folder}/main.k"),
                format!("resources = {}\n", json!(resources)),
            )
            .commit(stack);
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Konverge::new(arguments)
            .with_kcl()
            .dir(self.monorepo.path())
            .env("XDG_STATE_HOME", self.monorepo.path().join(".git/test-state"))
            .env("EAST", self.east.kubeconfig())
            .env("WEST", self.west.kubeconfig())
            .run()
    }

    /// How each stack ended, by name.
    fn apply(&self, code: i32) -> Vec<(String, String)> {
        let outcome = self
            .run(&["apply", "--all", "--yes", "--output", "json"])
            .expect(code);
        let stacks = outcome.json()["stacks"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        stacks
            .iter()
            .map(|stack| (text(&stack["id"]), text(&stack["result"])))
            .collect()
    }
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
    let shop = Shop {
        monorepo: Repository::init(),
        east,
        west,
    };
    shop.monorepo
        .write("konverge.yaml", CONFIG)
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("apps/shop/project.yaml", "name: shop\n");
    let first = config_map(&names.0, "first");
    let abroad = config_map(&names.1, "abroad");
    let second = config_map(&names.1, "second");
    let nowhere = config_map("a-namespace-that-is-not-there", "nowhere");
    shop.wants("west", &[resource(&second, None)]);
    shop.wants(
        "east",
        &[
            resource(&first, None),
            resource(&abroad, Some("west")),
            resource(&nowhere, None),
        ],
    );
    assert_eq!(shop.apply(1), ended("failed", "held-back"));
    assert!(
        of_east.get(&first).await.is_some(),
        "an independent branch goes on"
    );
    assert!(of_west.get(&abroad).await.is_some());
    assert!(of_west.get(&second).await.is_none());

    // Mended: both, each where it belongs and nowhere else.
    shop.wants("east", &[resource(&first, None), resource(&abroad, Some("west"))]);
    let started = of_west.get(&abroad).await.unwrap();
    assert_eq!(shop.apply(0), ended("unchanged", "applied"));
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
    assert_eq!(shop.apply(0), ended("unchanged", "unchanged"));

    // Out of the Spec: it goes from the cluster that the state names.
    shop.wants("east", &[resource(&first, None)]);
    assert_eq!(shop.apply(0), ended("applied", "unchanged"));
    assert!(of_west.get(&abroad).await.is_none());

    // A cluster that is not defined is named, with those that are.
    shop.wants("east", &[resource(&first, Some("north"))]);
    let unknown = shop.run(&["apply", "--all", "--yes"]).expect(1);
    let said = unknown.stdout + &unknown.stderr;
    assert!(said.contains("there is no cluster `north`"), "{said}");
    assert!(said.contains("held back"), "{said}");
}
