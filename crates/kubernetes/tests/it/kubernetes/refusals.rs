//! What is replaced, lost or refused: shown before anything is done, with the field and the reason, on a real API
//! server.

use konverge_base::model::plan::{Action, Validation};
use serde_json::json;

use crate::{
    kubernetes::three_way::{config_map, deployment},
    support::{
        cluster::Cluster,
        objects::Objects,
        stack::{TestStack, id, planned, spec},
    },
};

#[tokio::test]
async fn an_immutable_change_is_a_replace_with_its_paths() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("immutable").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("immutable", cluster.kubeconfig());
    let mut web = deployment(&ns, "web", "nginx:1");
    stack.apply(std::slice::from_ref(&web)).await;
    let uid = objects.get(&web).await.unwrap()["metadata"]["uid"].clone();
    web["spec"]["selector"]["matchLabels"]["tier"] = json!("front");
    web["spec"]["template"]["metadata"]["labels"]["tier"] = json!("front");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let change = planned(&plan, &web).unwrap();
    assert_eq!(
        (change.action, change.validated),
        (Action::Replace, Validation::Server),
        "{change:?}"
    );
    assert_eq!(change.replace, ["/spec/selector"]);
    assert!(!change.data_loss);
    stack.carry_out(plan).await;
    let live = objects.get(&web).await.unwrap();
    assert_ne!(live["metadata"]["uid"], uid);
    assert_eq!(live["spec"]["selector"]["matchLabels"]["tier"], "front");
    assert_eq!(stack.plan_well(&[web]).await.public.summary.unchanged, 1);
}

#[tokio::test]
async fn a_replacement_that_loses_data_is_marked_and_protection_forbids_it() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("dataloss").await;
    let mut stack = TestStack::new("dataloss", cluster.kubeconfig());
    let claim = |mode: &str, protect: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": ns, "annotations": {"konverge/protect": protect}},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    stack.apply(&[claim("ReadWriteOnce", "false")]).await;
    let plan = stack.plan_well(&[claim("ReadWriteMany", "false")]).await;
    let change = planned(&plan, &claim("", "")).unwrap();
    assert_eq!(
        (change.action, change.data_loss),
        (Action::Replace, true),
        "{change:?}"
    );
    stack.apply(&[claim("ReadWriteOnce", "true")]).await;
    let refused = stack.plan(&[claim("ReadWriteMany", "true")]).await;
    assert!(
        refused.failures[0].1.message.contains("konverge/protect"),
        "{:?}",
        refused.failures
    );
    let refused = stack.plan(&[]).await;
    assert!(
        refused.failures[0].1.message.contains("would be deleted"),
        "{:?}",
        refused.failures
    );
}

#[tokio::test]
async fn what_is_lost_with_an_object_is_said() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("lost").await;
    let mut stack = TestStack::new("lost", cluster.kubeconfig());
    let meta = |name: &str| json!({"name": name, "namespace": ns});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let service = |kind: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(&kind.to_lowercase()), "spec": {"type": kind, "ports": [{"port": 80}]}});
    let wanted = [
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("c"), "spec": claim}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("{ns}-inner")}}),
        service("LoadBalancer"),
        service("ClusterIP"),
    ];
    stack.apply(&wanted).await;
    let plan = stack.plan_well(&[]).await;
    let words = [
        "volume's data",
        "everything in the namespace",
        "address of its load balancer is released",
    ];
    for (object, words) in wanted.iter().zip(words) {
        let change = planned(&plan, object).unwrap();
        assert_eq!(
            (change.action, change.data_loss),
            (Action::Delete, true),
            "{change:?}"
        );
        assert!(change.notes.iter().any(|note| note.contains(words)), "{change:?}");
    }
    assert!(!planned(&plan, &wanted[3]).unwrap().data_loss);
}

#[tokio::test]
async fn invalid_objects_are_refused_with_their_field() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("invalid").await;
    let stack = TestStack::new("invalid", cluster.kubeconfig());
    let mut negative = deployment(&ns, "web", "nginx:1");
    negative["spec"]["replicas"] = json!(-1);
    let mut unknown = deployment(&ns, "unknown", "nginx:1");
    unknown["spec"]["replicsa"] = json!(1);
    let before = cluster.audit().len();
    let plan = stack
        .plan(&[
            negative,
            unknown,
            config_map(&ns, "number", json!({"k": 1})),
            config_map(&ns, "fine", json!({})),
        ])
        .await;
    let messages: Vec<_> = plan.failures.iter().map(|(_, f)| f.message.clone()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].contains("spec.replicas"), "{messages:?}");
    assert!(messages[1].contains("replicsa"), "{messages:?}");
    assert!(messages[2].contains("data.k: expected string"), "{messages:?}");
    let hints: Vec<_> = plan
        .failures
        .iter()
        .map(|(_, failure)| failure.hints.join("\n"))
        .collect();
    for (hint, expected) in hints.iter().zip([
        "the Spec sets `spec.replicas`: `kubectl explain deployment.spec.replicas --api-version=apps/v1`",
        "the kind has no `spec.replicsa` in this version: `kubectl explain deployment.spec --api-version=apps/v1`",
        "the Spec sets `data.k`: `kubectl explain configmap.data --api-version=v1`",
    ]) {
        assert!(hint.starts_with(expected), "{hint}");
    }
    let asked = cluster.audit().split_off(before);
    let dry_runs = asked
        .iter()
        .filter(|event| event.is_in(&ns) && event.verb == "patch");
    assert_eq!(
        dry_runs.count(),
        4,
        "the server calls it an error of its own, and it is not sent again"
    );
    assert_eq!(
        plan.public.summary.create, 1,
        "the others are planned all the same"
    );
    assert!(plan.public.error.is_some());
}

#[tokio::test]
async fn one_object_in_two_versions_is_refused() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("twice").await;
    let scaler = |version: &str| {
        json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": ns},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}})
    };
    let stack = TestStack::new("twice", cluster.kubeconfig());
    let both = [scaler("autoscaling/v1"), scaler("autoscaling/v2")];
    let failure = stack.try_plan(&spec(&both)).await.err().expect("it is refused");
    let ids = both.each_ref().map(|object| format!("`{}`", id(object)));
    assert_eq!(
        failure.message,
        format!("{} and {} are the same object", ids[0], ids[1])
    );
}

#[tokio::test]
async fn a_namespace_that_is_going_is_no_matter_of_rights() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("going").await, Objects::of(cluster).await);
    // Nobody is there who would empty it.
    objects
        .delete(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}))
        .await;
    let stack = TestStack::new("going", cluster.kubeconfig());
    let plan = stack.plan(&[config_map(&ns, "c", json!({}))]).await;
    let (_, failure) = &plan.failures[0];
    assert!(
        failure.message.contains("because it is being terminated"),
        "{failure:?}"
    );
    assert!(
        failure.hints.len() == 1 && failure.hints[0].contains("wait until the namespace is gone"),
        "{failure:?}"
    );
}

/// What the server's own admission denies has the code of a missing right, and no right would help.
#[tokio::test]
async fn what_admission_denies_is_no_question_of_rights() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("denied").await;
    let objects = Objects::of(cluster).await;
    let meta = |name: &str| json!({"name": name, "namespace": ns});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    let enforced = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    objects.merge(&namespace, "somebody", &enforced).await;
    let limits = json!({"limits": [{"type": "Container", "min": {"cpu": "100m"}}]});
    objects
        .create(
            &json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta("bounds"), "spec": limits}),
        )
        .await;
    // Without controllers nobody makes it.
    objects
        .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("default")}))
        .await;
    let pod = |name: &str, more: &dyn Fn(&mut serde_json::Value)| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(name), "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "web", "image": "nginx:1",
                "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
        more(&mut pod["spec"]);
        pod
    };
    let wanted = [
        pod("privileged", &|spec| {
            spec["containers"][0]["securityContext"] = json!({"privileged": true});
        }),
        pod("small", &|spec| {
            spec["containers"][0]["resources"]["requests"] = json!({"cpu": "1m"})
        }),
        pod("urgent", &|spec| {
            spec["priorityClassName"] = json!("urgent-that-is-not-there")
        }),
    ];
    let stack = TestStack::new("denied", cluster.kubeconfig());
    let plan = stack.plan(&wanted).await;
    let hints: Vec<_> = plan
        .failures
        .iter()
        .map(|(_, failure)| failure.hints.join("\n"))
        .collect();
    assert_eq!(hints.len(), wanted.len(), "{:?}", plan.failures);
    for (hint, expected) in hints.iter().zip([
        "pod-security.kubernetes.io/enforce",
        "LimitRange",
        "PriorityClass",
    ]) {
        assert!(
            hint.contains(expected) && !hint.contains("can-i"),
            "{expected}: {hint}"
        );
    }
}
