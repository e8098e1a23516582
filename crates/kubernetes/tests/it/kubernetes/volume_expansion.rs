//! A StatefulSet whose volumes grow, with controllers that bind and orphan.

use konverge_base::model::plan::Action;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    objects::Objects,
    stack::{TestStack, planned},
};

/// A set with one volume a pod.
fn set(ns: &str, storage: &str, class: &str) -> Value {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": storage}}}});
    let pod = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "c:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": ns},
        "spec": {"serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": pod, "volumeClaimTemplates": [claim]}})
}

async fn storage(objects: &Objects, name: &str, expands: bool) {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": expands});
    objects
        .create_at("/apis/storage.k8s.io/v1/storageclasses", &class)
        .await;
    for n in 0..2 {
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{name}-{n}")},
            "spec": {"capacity": {"storage": "9Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": name,
                "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "test.example.com", "volumeHandle": format!("{name}-{n}")}}});
        objects.create(&volume).await;
    }
}

async fn pods_and_claims(objects: &Objects, ns: &str) -> (Vec<String>, Vec<String>) {
    let uids = |pods: Vec<Value>| pods.iter().map(|p| p["metadata"]["uid"].to_string()).collect();
    let pods = objects.list(&format!("/api/v1/namespaces/{ns}/pods")).await;
    let claims = objects
        .list(&format!("/api/v1/namespaces/{ns}/persistentvolumeclaims"))
        .await;
    let requests = claims
        .iter()
        .map(|claim| claim["spec"]["resources"]["requests"]["storage"].to_string());
    (uids(pods), requests.collect())
}

/// Killed at each request in turn, it is brought to its end with the same pods and the same volumes.
#[tokio::test]
async fn a_set_whose_volumes_grow_is_recreated_around_its_pods() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (
        cluster.namespace("together-volumes").await,
        Objects::of(cluster).await,
    );
    storage(&objects, &ns, true).await;
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let mut stack = TestStack::new("together-volumes", proxy.kubeconfig());
    stack.options.wait = true;
    stack.apply(&[set(&ns, "1Gi", &ns)]).await;
    let (pods, _) = pods_and_claims(&objects, &ns).await;
    assert_eq!(pods.len(), 2);
    let mut size = 1;
    for kill_at in 1.. {
        size += 1;
        let wanted = set(&ns, &format!("{size}Gi"), &ns);
        let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
        let shown = planned(&plan, &wanted).unwrap();
        assert_eq!(
            (shown.action, shown.data_loss),
            (Action::Replace, false),
            "{shown:?}"
        );
        assert_eq!(shown.replace, ["/spec/volumeClaimTemplates"]);
        let notes = shown.notes.join("\n");
        assert!(
            notes.contains(&format!("`data-db-0` to {size}Gi"))
                && notes.contains("recreated around its pods"),
            "{notes}"
        );
        proxy.kill_at_write(kill_at);
        let killed = stack.carry_out_until(plan, proxy.killed()).await.is_none();
        proxy.calm();
        if killed {
            let rest = stack.plan_well(std::slice::from_ref(&wanted)).await;
            let outcome = stack.carry_out(rest).await;
            assert!(outcome.error.is_none(), "killed at {kill_at}: {outcome:?}");
        }
        let (after, claims) = pods_and_claims(&objects, &ns).await;
        assert_eq!(after, pods, "killed at {kill_at}: the pods were replaced");
        assert_eq!(claims, vec![format!("\"{size}Gi\""); 2], "killed at {kill_at}");
        assert_eq!(
            stack.plan_well(&[wanted]).await.public.summary.unchanged,
            1,
            "killed at {kill_at}"
        );
        if !killed {
            assert!(kill_at > 3, "it was never killed on its way");
            break;
        }
    }

    // Where the class does not let them, it is a replacement like any other, and says why.
    let fixed = format!("{ns}-fixed");
    let other = cluster.namespace("together-volumes").await;
    storage(&objects, &fixed, false).await;
    let mut stack = TestStack::new("together-volumes-fixed", cluster.kubeconfig());
    stack.options.wait = true;
    stack.apply(&[set(&other, "1Gi", &fixed)]).await;
    let wanted = set(&other, "2Gi", &fixed);
    let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
    let shown = planned(&plan, &wanted).unwrap();
    let notes = shown.notes.join("\n");
    assert!(
        shown.data_loss && notes.contains("its volumes cannot be expanded in place"),
        "{shown:?}"
    );
}
