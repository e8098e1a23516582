//! A Namespace or a CRD that a stack drops: what other stacks have in it is named and counted, and stops the plan
//! unless they give it up in the same change.

use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, cluster::Cluster, objects::Objects, tiny_monorepo};

const NAMESPACE: &str = "held-objects";

fn resource(id: &str, object: &Value) -> String {
    format!("{{id = \"{id}\", type = \"Kubernetes\", attributes = {object}}}")
}

fn container(stage: &Stage, stack: &str, value: &str, with_containers: bool) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "fruits.held.example.com"},
        "spec": {"group": "held.example.com", "scope": "Namespaced", "names": {"plural": "fruits", "kind": "Fruit"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let stays = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held-stays", "namespace": "default"}, "data": {"a": value}});
    let mut resources = vec![resource("v1:ConfigMap:default:held-stays", &stays)];
    if with_containers {
        resources.push(resource("v1:Namespace:held-objects", &namespace));
        let id = "apiextensions.k8s.io/v1:CustomResourceDefinition:fruits.held.example.com";
        resources.push(resource(id, &definition));
    }
    write(stage, stack, &resources);
}

fn inhabitant(stage: &Stage, stack: &str, with_objects: bool) {
    let here = |kind: &str, version: &str, more: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "inside", "namespace": NAMESPACE}});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        resource(&format!("{version}:{kind}:{NAMESPACE}:inside"), &object)
    };
    let mut resources = vec![resource(
        "v1:ConfigMap:default:held-other",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held-other", "namespace": "default"}, "data": {"a": "1"}}),
    )];
    if with_objects {
        resources.push(here("ConfigMap", "v1", json!({"data": {"a": "1"}})));
        resources.push(here("ServiceAccount", "v1", json!({})));
        resources.push(here(
            "Fruit",
            "held.example.com/v1",
            json!({"spec": {"color": "red"}}),
        ));
    }
    write(stage, stack, &resources);
}

fn write(stage: &Stage, stack: &str, resources: &[String]) {
    let program = format!("resources = [\n{}\n]\n", resources.join(",\n"));
    let program = program.replace("true", "True");
    tiny_monorepo::write_program(&stage.monorepo, stack, &program);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_stacks_have_in_it_stops_its_deletion() {
    let mut stage = Stage::small("").await;
    stage.cluster = Cluster::with_controllers();
    let (owner, other) = ("held-a/prod", "held-b/prod");
    stage.reviewed(1, "containers", |stage| container(stage, owner, "1", true));
    stage.merge(1, "containers").outcome.check(0);
    stage.reviewed(2, "objects", |stage| inhabitant(stage, other, true));
    stage.merge(2, "objects").outcome.check(0);
    let objects = Objects::of(stage.cluster).await;
    let fruit = json!({"apiVersion": "held.example.com/v1", "kind": "Fruit", "metadata": {"name": "inside", "namespace": NAMESPACE}});
    assert!(objects.get(&fruit).await.is_some());

    // The owner drops both, and the other stack keeps its objects.
    stage.monorepo.checkout("main").branch("dropped");
    container(&stage, owner, "1", false);
    stage.monorepo.commit("dropped");
    let ran = stage.pull_request(3, "dropped", "opened");
    ran.outcome.check(1);
    let said = ran.summary.clone() + &ran.outcome.stdout;
    for words in [
        "3 objects of other stacks would be deleted with it",
        "1 object of other stacks would be deleted with it",
        "held-b/prod",
        "v1:ConfigMap:held-objects:inside",
        "v1:ServiceAccount:held-objects:inside",
        "held.example.com/v1:Fruit:held-objects:inside",
        "in the same change",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let merged = stage.merge(3, "dropped");
    assert_ne!(merged.outcome.code, Some(0));
    assert!(objects.get(&fruit).await.is_some());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let live = objects.get(&namespace).await.unwrap();
    assert!(live["metadata"]["deletionTimestamp"].is_null());

    // It gives them up: both go in one run, the objects first.
    let (_, previewed) = stage.reviewed(4, "given-up", |stage| {
        container(stage, owner, "2", false);
        inhabitant(stage, other, false);
    });
    let said = &previewed.summary;
    assert!(
        said.contains("this also deletes objects that their stacks remove in the same change: 3 of stack"),
        "{said}"
    );
    stage.merge(4, "given-up").outcome.check(0);
    assert!(objects.get(&namespace).await.is_none());
}
