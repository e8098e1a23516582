//! Failures of the API server itself: versions that die, APIs that are down, names it makes up, quotas.

use std::time::Duration;

use konverge_base::{
    error::ErrorKind,
    model::plan::{Action, Validation},
};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    process::Konverge,
    service::eventually,
    stack::{TestStack, action, id, planned},
};

fn config_map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
}

const GROUP: &str = "versions.example.com";

/// A kind in several versions, the last one stored, each with the fields given.
fn definition(versions: &[(&str, &[&str])]) -> Value {
    let last = versions.len() - 1;
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(n, (name, fields))| {
            let fields: serde_json::Map<_, _> = fields
                .iter()
                .map(|field| ((*field).to_owned(), json!({"type": "string"})))
                .collect();
            let spec = json!({"type": "object", "properties": fields});
            json!({"name": name, "served": true, "storage": n == last,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
        })
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("gauges.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"kind": "Gauge", "plural": "gauges", "singular": "gauge"}, "versions": versions}})
}

/// Entries of managed fields in a version that the server no longer has, ours and somebody else's, and fields
/// that left the schema.
#[tokio::test]
async fn managed_fields_of_a_dead_version_do_not_block_an_object() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-dead-version").await;
    let objects = Objects::of(cluster).await;
    let mut platform = TestStack::new("trap-dead-version-crd", cluster.kubeconfig());
    platform.options.wait = true;
    let mut stack = TestStack::new("trap-dead-version", cluster.kubeconfig());
    let gauge = |version: &str, spec: Value| json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Gauge", "metadata": {"name": "g", "namespace": ns}, "spec": spec});
    let both: &[&str] = &["size", "old"];
    platform.apply(&[definition(&[("v1beta1", both)])]).await;
    let old = gauge("v1beta1", json!({"size": "1", "old": "x"}));
    stack.apply(std::slice::from_ref(&old)).await;
    objects
        .merge(
            &old,
            "somebody",
            &json!({"metadata": {"labels": {"by": "somebody"}}, "spec": {"old": "y"}}),
        )
        .await;

    // The kind moves on: first both versions, then the old one is gone, with one of its fields.
    platform
        .apply(&[definition(&[("v1beta1", both), ("v1", &["size"])])])
        .await;
    // Any write moves what is stored to the new version; what managed fields say stays in the old one.
    let new = |size: &str| gauge("v1", json!({"size": size}));
    let served = new("");
    eventually("the new version is served", Duration::from_secs(30), || {
        objects.get(&served)
    })
    .await;
    objects
        .merge(
            &new(""),
            "migrator",
            &json!({"metadata": {"labels": {"by": "migrator"}}}),
        )
        .await;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gauges.{GROUP}");
    objects.report(&path, &json!({"storedVersions": ["v1"]})).await;
    platform.apply(&[definition(&[("v1", &["size"])])]).await;
    eventually("the old version is gone", Duration::from_secs(30), || async {
        let plan = stack
            .try_plan(&crate::support::stack::spec(std::slice::from_ref(&old)))
            .await;
        plan.is_ok_and(|plan| !plan.failures.is_empty()).then_some(())
    })
    .await;

    // The server refuses every write: why, and the way out, which works.
    let refused = stack.plan(&[new("2")]).await;
    let (_, failure) = &refused.failures[0];
    assert!(failure.message.contains("invalid group/version"), "{failure:?}");
    assert!(
        failure.hints[1].contains(r#"{"metadata":{"managedFields":[{}]}}"#),
        "{failure:?}"
    );
    let cleared = json!({"metadata": {"managedFields": [{}]}});
    objects.merge(&new(""), "somebody", &cleared).await;

    // The same object, in the version of today.
    let plan = stack.plan_well(&[new("2")]).await;
    let change = planned(&plan, &new("")).expect("it is planned");
    assert_eq!(change.action, Action::Update, "{:?}", plan.public);
    // The object is not deleted under its old id.
    assert_eq!(
        (plan.public.summary.forget, plan.public.summary.delete),
        (1, 0),
        "{:?}",
        plan.public
    );
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    assert_eq!(objects.get(&new("")).await.unwrap()["spec"], json!({"size": "2"}));
    assert_eq!(
        action(&stack.plan_well(&[new("2")]).await, &new("")),
        Action::Unchanged
    );
    let plan = stack.plan_well(&[]).await;
    assert_eq!(plan.public.summary.delete, 1);
    stack.carry_out(plan).await;
    assert!(objects.get(&new("")).await.is_none());
}

/// A name that the server would make up cannot be applied; said before anything is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_generated_name_is_refused_before_anything_is_written() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-generate").await;
    let home = tempfile::tempdir().unwrap();
    let nameless = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "once-", "namespace": ns},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]}}}});
    let map = config_map(&ns, "c", json!({}));
    let resource = |id: String, object: &Value| json!({"id": id, "type": "Kubernetes", "attributes": object});
    let resources = [
        resource(id(&map), &map),
        resource(format!("batch/v1:Job:{ns}:once"), &nameless),
    ];
    std::fs::write(
        home.path().join("spec.json"),
        json!({"resources": resources}).to_string(),
    )
    .unwrap();
    let before = cluster.audit().len();
    for command in [vec!["preview"], vec!["apply", "--yes"]] {
        let outcome = Konverge::new(command)
            .arg_all(["--spec", "spec.json", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .dir(home.path())
            .run()
            .expect(1);
        let said = outcome.stdout + &outcome.stderr;
        assert!(
            said.contains("generateName") && said.contains("resources[1]"),
            "{said}"
        );
    }
    let mut audit = cluster.audit().split_off(before);
    audit.retain(|event| event.is_in(&ns) && event.writes());
    assert!(audit.is_empty(), "{audit:?}");
}

/// An aggregated API that does not answer takes nothing down but its own kinds.
#[tokio::test]
async fn an_aggregated_api_that_is_down_takes_only_its_own_kinds() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-aggregated").await;
    let objects = Objects::of(cluster).await;
    let group = "down.example.com";
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"name": "nobody", "namespace": ns}}});
    objects.create(&service).await;
    eventually("the server has noticed", Duration::from_secs(60), || async {
        let live = objects.get(&service).await?;
        let conditions = live["status"]["conditions"].as_array()?.clone();
        let down = |c: &Value| c["type"] == "Available" && c["status"] == "False";
        conditions.iter().any(down).then_some(())
    })
    .await;
    let mut stack = TestStack::new("trap-aggregated", cluster.kubeconfig());
    let map = config_map(&ns, "c", json!({"k": "1"}));
    let theirs = json!({"apiVersion": format!("{group}/v1"), "kind": "Metric", "metadata": {"name": "m", "namespace": ns}});
    let plan = stack.plan_well(&[map.clone(), theirs.clone()]).await;
    assert_eq!(planned(&plan, &map).unwrap().validated, Validation::Server);
    let unknown = planned(&plan, &theirs).unwrap();
    assert_eq!(unknown.validated, Validation::None);
    assert!(
        unknown
            .notes
            .iter()
            .any(|note| note.contains("does not know `Metric`")),
        "{unknown:?}"
    );
    stack.apply(std::slice::from_ref(&map)).await;
    assert!(objects.get(&map).await.is_some());
    objects.delete(&service).await;
}

/// A refusal because of a quota is told apart, in the preview already.
#[tokio::test]
async fn a_quota_that_is_used_up_is_said_in_the_preview() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-quota").await;
    let objects = Objects::of(cluster).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight", "namespace": ns},
        "spec": {"hard": {"count/configmaps": "1"}}});
    objects.create(&quota).await;
    // What the quota controller would have counted.
    let used = json!({"hard": {"count/configmaps": "1"}, "used": {"count/configmaps": "1"}});
    objects
        .report(&format!("/api/v1/namespaces/{ns}/resourcequotas/tight"), &used)
        .await;
    let stack = TestStack::new("trap-quota", cluster.kubeconfig());
    let map = config_map(&ns, "c", json!({}));
    let refused = eventually("the quota is in force", Duration::from_secs(30), || async {
        let plan = stack.plan(std::slice::from_ref(&map)).await;
        plan.failures.into_iter().next()
    });
    let (_, failure) = refused.await;
    assert!(failure.message.contains("exceeded quota: tight"), "{failure:?}");
    assert_eq!(failure.kind, ErrorKind::Policy);
    assert!(failure.hints[0].contains("larger quota"), "{failure:?}");
}

/// Whether the server lists a version of an API whose own server does not answer.
async fn is_stale(client: &kube::Client, group: &str) -> bool {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = http::Request::get("/apis").header("accept", accept);
    let list: Value = client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let groups = list["items"].as_array().unwrap();
    let mut groups = groups.iter().filter(|found| found["metadata"]["name"] == group);
    groups.any(|found| found["versions"][0]["freshness"] == "Stale")
}

/// What was recorded of such an API is not taken for gone.
#[tokio::test]
async fn nothing_is_forgotten_while_its_api_is_down() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-stale").await;
    let (objects, client) = (Objects::of(cluster).await, cluster.client().await);
    let mut stack = TestStack::new("trap-stale", cluster.kubeconfig());
    let map = config_map(&ns, "c", json!({"k": "1"}));
    stack.apply(std::slice::from_ref(&map)).await;
    let group = "stale.example.com";
    let thing = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name, "namespace": ns}});
    let (kept, gone) = (thing("kept"), thing("gone"));
    for made in [&kept, &gone] {
        let mut recorded = stack.state.resources[0].clone();
        recorded.id = id(made).parse().unwrap();
        recorded.attributes = made.as_object().unwrap().clone().into();
        stack.state.put(recorded);
    }
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"name": "nobody", "namespace": ns}}});
    objects.create(&service).await;
    let limit = Duration::from_secs(120);
    eventually("the API is listed", limit, || async {
        is_stale(&client, group).await.then_some(())
    })
    .await;
    let down = stack.plan(&[map.clone(), kept.clone()]).await;
    objects.delete(&service).await;

    let failed: Vec<_> = down.failures.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(failed, [id(&kept), id(&gone)], "{:?}", down.public);
    for (_, failure) in &down.failures {
        assert_eq!(failure.kind, ErrorKind::Kubernetes);
        let why = format!("`{group}/v1` does not answer");
        assert!(failure.message.contains(&why), "{failure:?}");
        assert!(
            failure.hints[0].contains("kubectl get apiservices"),
            "{failure:?}"
        );
    }
    assert_eq!(
        down.public.summary.unchanged, 1,
        "what does not need that API is planned"
    );

    eventually("the API is gone", limit, || async {
        (!is_stale(&client, group).await).then_some(())
    })
    .await;
    let plan = stack.plan_well(std::slice::from_ref(&map)).await;
    assert_eq!(action(&plan, &gone), Action::Forget);
}
