//! Custom resources are compared by the types in their CRD schema.

use konverge_base::model::plan::Action;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    stack::{TestStack, action, planned},
};

/// A CRD with quantity-like strings, an int-or-string port, and a keyed list.
fn definition() -> Value {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "string"},
        "port": {"x-kubernetes-int-or-string": true},
        "mode": {"type": "string", "default": "calm"},
        "env": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "lamps.custom.example.com"},
        "spec": {"group": "custom.example.com", "scope": "Namespaced", "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn lamp(ns: &str, spec: Value) -> Value {
    json!({"apiVersion": "custom.example.com/v1", "kind": "Lamp", "metadata": {"name": "lamp", "namespace": ns}, "spec": spec})
}

#[tokio::test]
async fn their_values_compare_as_their_schema_says() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("custom").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("custom", cluster.kubeconfig());
    stack.options.wait = true;
    let first = json!({"size": "1000m", "port": 80, "env": [{"name": "A", "value": "1"}, {"name": "B"}]});
    stack.apply(&[definition(), lamp(&ns, first.clone())]).await;
    let again = stack.plan_well(&[definition(), lamp(&ns, first.clone())]).await;
    assert_eq!(
        again.public.summary.unchanged, 2,
        "a default is not a change: {:?}",
        again.public
    );
    let edits = [
        // A text is a text, whatever it would be as a quantity; a number is not the text of it.
        ("/size", json!("1"), "/spec/size"),
        ("/port", json!("80"), "/spec/port"),
        ("/env/1/value", json!("2"), "/spec/env/name=B/value"),
    ];
    let mut spec = first;
    for (at, value, path) in edits {
        match spec.pointer_mut(at) {
            Some(place) => *place = value.clone(),
            None => spec["env"][1]["value"] = value.clone(),
        }
        let wanted = [definition(), lamp(&ns, spec.clone())];
        let plan = stack.plan_well(&wanted).await;
        let change = planned(&plan, &wanted[1]).expect("it is a change");
        let changes: Vec<_> = change
            .changes
            .iter()
            .map(|c| (c.path.as_str(), c.to.clone()))
            .collect();
        assert_eq!(
            (change.action, changes),
            (Action::Update, vec![(path, Some(value))])
        );
        stack.carry_out(plan).await;
        assert_eq!(
            action(&stack.plan_well(&wanted).await, &wanted[1]),
            Action::Unchanged
        );
    }
    let live = objects.get(&lamp(&ns, json!({}))).await.unwrap();
    assert_eq!(
        (&live["spec"]["size"], &live["spec"]["port"]),
        (&json!("1"), &json!("80"))
    );

    // Here a key that is there twice is refused, by its name, in the preview.
    spec["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let refused = stack.plan(&[definition(), lamp(&ns, spec)]).await;
    let (_, failure) = refused.failures.first().expect("it is refused");
    assert!(
        failure.message.contains("env") && failure.message.contains("uplicate"),
        "{failure:?}"
    );
}

/// What looks like a mark in a live object is a value that somebody wrote: it is neither shown as a secret nor as
/// unknown, and hides nothing.
#[tokio::test]
async fn a_live_object_holds_no_marks() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("marks").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("marks", cluster.kubeconfig());
    stack.options.wait = true;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "marks.custom.example.com"},
        "spec": {"group": "custom.example.com", "scope": "Namespaced", "names": {"kind": "Mark", "plural": "marks", "singular": "mark"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}}}]}});
    let of = |size: u64, extra: Value| {
        let mut spec = json!({"size": size});
        spec["extra"] = extra;
        json!({"apiVersion": "custom.example.com/v1", "kind": "Mark", "metadata": {"name": "mark", "namespace": ns}, "spec": spec})
    };
    let first = of(1, json!({"known": 1}));
    stack.apply(&[definition.clone(), first.clone()]).await;
    let extra = json!({"known": 2, "a": {"$secret": {"ref": "x", "text": "aééééé"}},
        "b": {"$unknown": {"password": "hunter2222"}}, "c": {"$unknown": true}, "password": {"$secret": "Hunter_3333"}});
    let patch = json!({"spec": {"extra": extra}});
    objects.merge(&first, "somebody", &patch).await;
    for wanted in [
        vec![definition.clone(), of(2, json!({"known": 3}))],
        vec![definition.clone()],
    ] {
        let plan = stack.plan_well(&wanted).await;
        let change = planned(&plan, &first).expect("it is a change");
        let text = serde_json::to_string(&change.changes).expect("it is JSON");
        assert!(!text.to_lowercase().contains("hunter"), "{text}");
        assert!(
            !text.contains("{\"$unknown\":true}") && !text.contains("{\"$secret\":{"),
            "{text}"
        );
        if change.action == Action::Delete {
            assert!(text.contains("$$unknown") && text.contains("aééééé"), "{text}");
        }
    }
}

/// Kinds of another group that are called like those of Kubernetes have no rules of those.
#[tokio::test]
async fn a_kind_of_another_group_has_no_rules_of_the_built_in_one() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("twin").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("twin", cluster.kubeconfig());
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = |kind: &str| {
        let singular = kind.to_lowercase();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{singular}s.twin.example.com")},
            "spec": {"group": "twin.example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}}]}})
    };
    let kinds = ["Job", "Deployment", "Service", "PersistentVolumeClaim"];
    let of = |kind: &str, image: &str| {
        let spec = json!({"type": "LoadBalancer", "replicas": 1, "ttlSecondsAfterFinished": 60,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}});
        json!({"apiVersion": "twin.example.com/v1", "kind": kind, "metadata": {"name": "twin", "namespace": ns}, "spec": spec})
    };
    let wanted = |image: &str| -> Vec<Value> {
        let definitions = kinds.iter().map(|kind| definition(kind));
        definitions
            .chain(kinds.iter().map(|kind| of(kind, image)))
            .collect()
    };
    stack.apply(&wanted("one")).await;

    // No phantom field, and no pods that restart.
    let plan = stack.plan_well(&wanted("two")).await;
    for kind in kinds {
        let change = planned(&plan, &of(kind, "two")).expect("it is a change");
        let paths: Vec<_> = change.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["/spec/template/spec/containers/name=c/image"], "{kind}");
        assert_eq!(change.notes, Vec::<String>::new(), "{kind}");
    }

    // It says that it is complete, and somebody deletes it: that is a difference.
    let job = of("Job", "one");
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    objects
        .report(&crate::support::objects::path(&job, true), &complete)
        .await;
    stack.apply(&wanted("one")).await;
    objects.delete(&job).await;
    let plan = stack.plan_well(&wanted("one")).await;
    assert_eq!(action(&plan, &job), Action::Create);
    stack.apply(&wanted("one")).await;

    // Nothing is lost with them.
    let plan = stack.plan_well(&kinds.map(definition)).await;
    for kind in kinds {
        let gone = planned(&plan, &of(kind, "one")).expect("it is deleted");
        assert_eq!(
            (gone.action, gone.data_loss),
            (Action::Delete, false),
            "{kind}: {:?}",
            gone.notes
        );
    }
}
