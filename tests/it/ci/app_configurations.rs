//! An application of today's Kusion, from its pull request to its removal, on a real control plane.

use serde_json::json;

use crate::support::{
    apps::{HELLO_FILE, QUICKSTART, hello_binary, workspace, write_hello_stack, write_stack},
    ci_stage::Stage,
    git::Repository,
    objects::Objects,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_application_and_its_workspace_go_by_pull_requests() {
    let monorepo = Repository::init();
    monorepo.write("kcl.mod", "[package]\nname = \"apps\"\n");
    let mut stage = Stage::with("app-configurations", monorepo, "").await;
    let objects = Objects::of(stage.cluster).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web-shop-dev-quickstart", "namespace": "web-shop"}});

    stage.propose("add", |monorepo| {
        write_stack(monorepo, "apps/web-shop/dev", ("0.2.1", "0.3.0"), QUICKSTART);
    });
    stage.pull_request(1, "add", "opened").outcome.check(0);
    let body = stage.comments()[0].1.clone();
    assert!(
        body.contains("web-shop/dev") && body.contains("Deployment"),
        "{body}"
    );
    assert!(objects.get(&deployment).await.is_none());
    stage.merge(1, "add").outcome.check(0);
    let live = objects.get(&deployment).await.expect("the merge made it");
    assert_eq!(live["spec"]["replicas"], 1);

    // A platform team's edit is a pull request like any other.
    stage.propose("scale", |monorepo| {
        monorepo.write(
            "workspaces/dev.yaml",
            workspace("0.2.0", "      default: {replicas: 2}\n"),
        );
    });
    stage.pull_request(2, "scale", "opened").outcome.check(0);
    let all: Vec<_> = stage.comments().into_iter().map(|(_, body)| body).collect();
    let says_all =
        |body: &String| body.contains("replicas") && body.contains("names version 0.2.0 of the module");
    assert!(all.iter().any(says_all), "{all:?}");
    stage.merge(2, "scale").outcome.check(0);
    let live = objects.get(&deployment).await.expect("it stays");
    assert_eq!(live["spec"]["replicas"], 2);
    stage.schedule().outcome.check(0);

    stage.propose("remove", |monorepo| {
        monorepo.remove("apps/web-shop");
    });
    stage.pull_request(3, "remove", "opened").outcome.check(0);
    stage.merge(3, "remove").outcome.check(0);
    assert!(objects.get(&deployment).await.is_none());
}

/// The same with a module that is not built in: its process runs in the preview, in the apply and in the drift check.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_with_a_module_of_its_own_goes_by_pull_requests() {
    let monorepo = Repository::init();
    monorepo.write("kcl.mod", "[package]\nname = \"apps\"\n");
    let mut stage = Stage::with("app-modules", monorepo, "").await;
    let objects = Objects::of(stage.cluster).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "quickstart-hello", "namespace": "web-hello"}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web-hello-dev-quickstart", "namespace": "web-hello"}});
    let folder = "apps/web-hello/dev";
    let settings = |size: u32| {
        format!(
            "modules:\n  hello:\n    path: oci://ghcr.io/acme/hello\n    version: 0.1.0\n    configs:\n      default: {{size: {size}}}\n"
        )
    };

    stage.propose("add", |monorepo| {
        write_hello_stack(monorepo, folder, "");
        let binary = std::fs::read(hello_binary()).unwrap();
        monorepo.write(&format!("{folder}/vendor/hello_0.1.0/{HELLO_FILE}"), binary);
        monorepo.write("workspaces/dev.yaml", settings(3));
    });
    stage.pull_request(1, "add", "opened").outcome.check(0);
    let body = stage.comments()[0].1.clone();
    assert!(
        body.contains("ConfigMap") && body.contains("web-hello/dev"),
        "{body}"
    );
    assert!(objects.get(&map).await.is_none());
    stage.merge(1, "add").outcome.check(0);
    let live = objects.get(&map).await.expect("the module's object");
    assert_eq!(
        (&live["data"]["platform"], &live["data"]["patched"]),
        (&json!("size: 3\n"), &json!("yes"))
    );
    let live = objects.get(&deployment).await.expect("the workload");
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"],
        "world"
    );
    assert_eq!(live["spec"]["replicas"], 2);

    stage.propose("size", |monorepo| {
        monorepo.write("workspaces/dev.yaml", settings(5));
    });
    stage.pull_request(2, "size", "opened").outcome.check(0);
    let all: Vec<_> = stage.comments().into_iter().map(|(_, body)| body).collect();
    assert!(all.iter().any(|body| body.contains("size: 5")), "{all:?}");
    stage.merge(2, "size").outcome.check(0);
    assert_eq!(objects.get(&map).await.unwrap()["data"]["platform"], "size: 5\n");

    // Nothing is different, until somebody edits what the module made.
    stage.schedule().outcome.check(0);
    assert_eq!(stage.github.world(|world| world.issues.len()), 0);
    objects
        .merge(&map, "kubectl-edit", &json!({"data": {"platform": "size: 9\n"}}))
        .await;
    stage.schedule().outcome.check(0);
    let found = stage.github.world(|world| world.issues.len());
    let restored = objects.get(&map).await.unwrap()["data"]["platform"] == "size: 5\n";
    assert!(found == 1 || restored, "the drift is said or put back");

    stage.propose("remove", |monorepo| {
        monorepo.remove("apps/web-hello");
    });
    stage.pull_request(3, "remove", "opened").outcome.check(0);
    stage.merge(3, "remove").outcome.check(0);
    assert!(objects.get(&map).await.is_none() && objects.get(&deployment).await.is_none());
}
