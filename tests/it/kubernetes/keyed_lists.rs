//! Commands on a Service whose port, the key of its list, is another manager's.

use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, objects::Objects, process::Outcome, tiny_monorepo};

fn service(name: &str, port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"name": "web", "port": port, "protocol": "TCP", "targetPort": 80}]}})
}

/// A monorepo with one stack of this Service.
async fn stage(service: &Value) -> Stage {
    let stage = Stage::small("").await;
    let name = service["metadata"]["name"].as_str().unwrap();
    let resource =
        json!({"id": format!("v1:Service:default:{name}"), "type": "Kubernetes", "attributes": service});
    // JSON is KCL.
    tiny_monorepo::write_program(
        &stage.monorepo,
        &format!("{name}/dev"),
        &format!("resources = [{resource}]\n"),
    );
    stage.monorepo.commit("A Service");
    stage
}

fn run(stage: &Stage, arguments: &[&str], code: i32) -> String {
    let Outcome { stdout, stderr, .. } = stage.konverge(arguments.iter().copied()).run().expect(code);
    format!("{stdout}{stderr}")
}

async fn ports(stage: &Stage, service: &Value) -> Vec<Value> {
    let live = Objects::of(stage.cluster).await.get(service).await.unwrap();
    let ports = live["spec"]["ports"].as_array().unwrap().iter();
    ports.map(|port| port["port"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_somebody_changed_is_drift_and_comes_back() {
    let web = service("keyed-drift", 80);
    let stage = stage(&web).await;
    let stack = "keyed-drift/dev";
    run(&stage, &["apply", "--yes", stack], 0);
    for restore in [
        ["apply", "--yes", "--recorded", stack].as_slice(),
        ["apply", "--yes", stack].as_slice(),
    ] {
        let theirs = json!({"spec": service("keyed-drift", 8181)["spec"]});
        Objects::of(stage.cluster)
            .await
            .merge(&web, "kubectl-patch", &theirs)
            .await;
        let drifted = run(&stage, &["drift", "--exit-code", stack], 2);
        assert!(drifted.contains("8181"), "{drifted}");
        let shown = run(&stage, &["preview", stack], 0);
        assert!(
            shown.contains("8181") && shown.contains("kubectl-patch"),
            "{shown}"
        );
        run(&stage, restore, 0);
        assert_eq!(ports(&stage, &web).await, [80]);
        run(&stage, &["drift", "--exit-code", stack], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_changed_in_the_step_that_takes_the_service_over() {
    let web = service("keyed-adopted", 9090);
    let stage = stage(&web).await;
    let stack = "keyed-adopted/dev";
    Objects::of(stage.cluster)
        .await
        .create_as(&service("keyed-adopted", 8080), "kubectl-client-side-apply")
        .await;
    let shown = run(&stage, &["preview", stack], 0);
    assert!(shown.contains("8080") && shown.contains("9090"), "{shown}");
    run(&stage, &["apply", "--yes", stack], 0);
    assert_eq!(ports(&stage, &web).await, [9090]);
    run(&stage, &["drift", "--exit-code", stack], 0);
}
