//! An application of today's Kusion, from its pull request to its removal, on a real control plane.

use serde_json::json;

use crate::support::{
    apps::{QUICKSTART, workspace, write_stack},
    git::Repository,
    objects::Objects,
    stage::Stage,
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
