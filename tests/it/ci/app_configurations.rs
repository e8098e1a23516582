//! An application of today's Kusion, from its pull request to its removal, on a real control plane.

use serde_json::json;

use crate::support::{
    apps::{HELLO_FILE, QUICKSTART, hello_binary, workspace, write_hello_stack, write_job, write_stack},
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

/// A stack in the shape of Konfig's example with several stacks: a base that all of them have, and what differs.
fn write_layered(monorepo: &Repository, project: &str, stack: &str, image: &str) {
    let folder = format!("example/{project}/{stack}");
    let own = format!(
        "import kam.v1.app_configuration as ac\nimport service\nimport service.container as c\n\necho: ac.AppConfiguration {{\n    workload: service.Service {{\n        containers: {{\n            \"server\": c.Container {{\n                image = \"{image}\"\n            }}\n        }}\n    }}\n}}\n"
    );
    write_stack(monorepo, &folder, ("0.2.1", "0.3.0"), &own);
    let base = QUICKSTART
        .replace("quickstart: ac", "echo: ac")
        .replace("quickstart: c.Container", "\"server\": c.Container")
        .replace(
            "image: \"kusionstack/kusion-quickstart:latest\"",
            "image = \"to be set\"",
        );
    monorepo.write(&format!("example/{project}/base/base.k"), base);
    let kcl_mod = format!("{folder}/kcl.mod");
    let text = monorepo.read(&kcl_mod);
    monorepo.write(
        &kcl_mod,
        text.replace("[\"main.k\"]", "[\"../base/base.k\", \"main.k\"]"),
    );
}

/// Three commits in the shape of Konfig's own `main`: a service with two stacks over a base, then a job beside it and
/// another image, then an edit of the base. Each goes by a pull request; then drift, then the removal of all.
#[tokio::test(flavor = "multi_thread")]
async fn three_commits_of_konfigs_shape_go_by_pull_requests() {
    let monorepo = Repository::init();
    monorepo.write("kcl.mod", "[package]\nname = \"konfig\"\n");
    let mut stage = Stage::with("konfig-main", monorepo, "").await;
    let objects = Objects::of(stage.cluster).await;
    let object = |api: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let deployment = |stack: &str| {
        object(
            "apps/v1",
            "Deployment",
            "many-stacks",
            &format!("many-stacks-{stack}-echo"),
        )
    };
    let job = object("batch/v1", "CronJob", "simple-job", "simple-job-dev-helloworld");
    let image = |live: &serde_json::Value| live["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let said = |stage: &Stage| {
        stage
            .comments()
            .into_iter()
            .map(|(_, body)| body)
            .collect::<String>()
    };

    stage.propose("first", |monorepo| {
        for (stack, image) in [("dev", "echo:latest"), ("prod", "echo:1.0")] {
            write_layered(monorepo, "many-stacks", stack, image);
        }
    });
    stage.pull_request(1, "first", "opened").outcome.check(0);
    assert!(said(&stage).contains("many-stacks/prod"), "{}", said(&stage));
    stage.merge(1, "first").outcome.check(0);
    let (dev, prod) = (
        objects.get(&deployment("dev")).await,
        objects.get(&deployment("prod")).await,
    );
    assert_eq!(image(&dev.unwrap()), "echo:latest");
    assert_eq!(image(&prod.unwrap()), "echo:1.0");

    stage.propose("second", |monorepo| {
        write_layered(monorepo, "many-stacks", "prod", "echo:1.1");
        let program = "import kam.v1.app_configuration as ac\nimport job\nimport job.container as c\n\nhelloworld: ac.AppConfiguration {\n    workload: job.Job {\n        containers: {\n            \"busybox\": c.Container {\n                image: \"busybox:1.28\"\n                command: [\"/bin/sh\", \"-c\", \"echo hello\"]\n            }\n        }\n        schedule: \"0 * * * *\"\n    }\n}\n";
        write_job(monorepo, "example/simple-job/dev", program);
    });
    stage.pull_request(2, "second", "opened").outcome.check(0);
    assert!(objects.get(&job).await.is_none());
    stage.merge(2, "second").outcome.check(0);
    assert_eq!(objects.get(&job).await.unwrap()["spec"]["schedule"], "0 * * * *");
    assert_eq!(
        image(&objects.get(&deployment("prod")).await.unwrap()),
        "echo:1.1"
    );

    // The base of both stacks: both follow, the job does not.
    stage.propose("third", |monorepo| {
        let base = monorepo.read("example/many-stacks/base/base.k");
        monorepo.write(
            "example/many-stacks/base/base.k",
            base.replace("port: 8080", "port: 9090"),
        );
    });
    let preview = stage.pull_request(3, "third", "opened");
    preview.outcome.check(0);
    assert!(
        !preview.outcome.stdout.contains("simple-job"),
        "{}",
        preview.outcome.stdout
    );
    stage.merge(3, "third").outcome.check(0);
    for stack in ["dev", "prod"] {
        let service = object(
            "v1",
            "Service",
            "many-stacks",
            &format!("many-stacks-{stack}-echo-private"),
        );
        assert_eq!(
            objects.get(&service).await.unwrap()["spec"]["ports"][0]["port"],
            9090
        );
    }

    // Drift: somebody sets another image, and the schedule puts it back or says it.
    stage.schedule().outcome.check(0);
    let by_hand =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "server", "image": "echo:evil"}]}}}});
    objects.merge(&deployment("prod"), "kubectl-edit", &by_hand).await;
    stage.schedule().outcome.check(0);
    let found = stage.github.world(|world| world.issues.len());
    let restored = image(&objects.get(&deployment("prod")).await.unwrap()) == "echo:1.1";
    assert!(found == 1 || restored, "the drift is said or put back");

    stage.propose("remove", |monorepo| {
        monorepo.remove("example");
    });
    stage.pull_request(4, "remove", "opened").outcome.check(0);
    stage.merge(4, "remove").outcome.check(0);
    for gone in [deployment("dev"), deployment("prod"), job] {
        assert!(objects.get(&gone).await.is_none(), "{gone}");
    }
}
