//! Kusion's `healthPolicy`: assertions in KCL that a resource brings with it, on a real control plane.

use serde_json::{Value, json};

use crate::support::{
    apps::{QUICKSTART, workspace, write_stack},
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
    shop_monorepo::{Shop, resource},
};

const CONFIG: &str = "version: 1\nclusters: {test: {}}\napply: {ready_timeout: 4s}\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_assertions_of_a_policy_say_when_an_object_is_ready() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("health-policy").await;
    let shop = Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())]);
    let wants = |stage: &str, code: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": namespace}, "data": {"stage": stage}});
        let mut map = resource(&map);
        map["extensions"] = json!({"healthPolicy": {"health.kcl": code}});
        shop.wants("dev", &[map]);
    };
    let code = "assert res.data.stage == \"done\", \"the stage is not done\"";
    wants("begun", code);
    let waits = shop.run(&["apply", "shop/dev", "--yes"]);
    let said = format!("{}{}", waits.stdout, waits.stderr);
    assert!(
        waits.code != Some(0) && said.contains("the stage is not done"),
        "{said}"
    );
    wants("done", code);
    shop.run(&["apply", "shop/dev", "--yes"]).expect(0);
    // Another policy for the same object is another question.
    wants(
        "done",
        "assert res.data.stage == \"closed\", \"the stage is not closed\"",
    );
    let preview = shop.run(&["preview", "shop/dev"]).expect(0);
    assert!(!preview.stdout.contains("healthPolicy"), "{}", preview.stdout);
    // A policy that is no KCL is said by name, and nothing is taken for ready.
    wants("more", "assert (");
    let broken = shop.run(&["apply", "shop/dev", "--yes"]);
    let said = format!("{}{}", broken.stdout, broken.stderr);
    assert!(
        broken.code != Some(0) && said.contains("the `healthPolicy` of"),
        "{said}"
    );
}

/// The policy of a workspace, from the file to the wait.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_a_workspace_is_waited_for() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let monorepo = Repository::init();
    write_stack(&monorepo, "apps/policy-shop/dev", ("0.2.1", "0.3.0"), QUICKSTART);
    monorepo.write("konverge.yaml", CONFIG);
    let policy = |replicas: u32| {
        let code = format!("assert res.spec.replicas == {replicas}, 'it wants {replicas} replicas'");
        let configs = format!(
            "      default:\n        replicas: 1\n        healthPolicy: {{health.kcl: \"{code}\"}}\n"
        );
        monorepo.write("workspaces/dev.yaml", workspace("0.2.1", &configs));
    };
    let apply = || -> Outcome {
        Konverge::new(["apply", "policy-shop/dev", "--yes"])
            .with_kcl()
            .dir(monorepo.path())
            .env("XDG_STATE_HOME", monorepo.path().join(".git/test-state"))
            .env("KUBECONFIG", cluster.kubeconfig())
            .run()
    };
    policy(3);
    let waits = apply();
    let said = format!("{}{}", waits.stdout, waits.stderr);
    assert!(
        waits.code != Some(0) && said.contains("it wants 3 replicas"),
        "{said}"
    );
    policy(1);
    apply().expect(0);
    let deployment: Value = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "policy-shop-dev-quickstart", "namespace": "policy-shop"}});
    assert!(objects.get(&deployment).await.is_some());
}
