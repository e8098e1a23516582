//! Schema checks against the real API server: what they refuse it refuses, what it takes they take, for the kinds that
//! come with Kubernetes and for a custom one.

use std::process::Command;

use http::Request;
use konverge_engine::spec::schema::{BuiltIn, CrdSchemas, SchemaFit, fit};
use serde_json::{Map, Value, json};

use crate::support::{cluster::Cluster, objects::Objects};

/// Edits of an object: where (RFC 6901), and what is put there.
type Edit = (&'static str, Value);

/// What the server says of an object that it is not to keep.
async fn server(client: &kube::Client, collection: &str, object: &Value) -> Result<(), String> {
    let uri = format!("{collection}?dryRun=All&fieldValidation=Strict");
    let request = Request::post(uri)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    client
        .request::<Value>(request)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

fn ours(object: &Value, definitions: &CrdSchemas) -> Vec<String> {
    let object: &Map<String, Value> = object.as_object().unwrap();
    match fit(object, &[definitions], &BuiltIn::new()) {
        SchemaFit::Defined(faults) | SchemaFit::BuiltIn(faults) => faults
            .into_iter()
            .map(|fault| format!("{}: {}", fault.path, fault.message))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// Sets a value, making the place if it is not there.
fn put(object: &mut Value, at: &str, value: Value) {
    let (parent, key) = at.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap_or_else(|| panic!("{parent}")) {
        Value::Object(map) => drop(map.insert(key.replace("~1", "/"), value)),
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        other => panic!("{at}: {other}"),
    }
}

async fn agree(collection: &str, object: &Value, definitions: &CrdSchemas, right: &[Edit], wrong: &[Edit]) {
    let client = Cluster::shared().client().await;
    assert_eq!(server(&client, collection, object).await, Ok(()));
    assert_eq!(ours(object, definitions), Vec::<String>::new());
    for (at, value) in right {
        let mut object = object.clone();
        put(&mut object, at, value.clone());
        assert_eq!(server(&client, collection, &object).await, Ok(()), "{at} {value}");
        assert_eq!(ours(&object, definitions), Vec::<String>::new(), "{at} {value}");
    }
    for (at, value) in wrong {
        let mut object = object.clone();
        put(&mut object, at, value.clone());
        let said = server(&client, collection, &object).await;
        assert!(said.is_err(), "the server takes {at} {value}");
        let path = at.trim_start_matches('/').split('/').next().unwrap();
        let found = ours(&object, definitions);
        assert!(
            found.iter().any(|fault| fault.starts_with(path)),
            "{at} {value}: {found:?}, but {said:?}"
        );
    }
}

#[tokio::test]
async fn the_server_agrees_about_a_deployment() {
    let ns = Cluster::shared().namespace("schema").await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns, "labels": {"a.b/c": "x"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "strategy": {"rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1",
                "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}}}]}}}});
    let container = "/spec/template/spec/containers/0";
    let at = |rest: &str| -> &'static str { Box::leak(format!("{container}{rest}").into_boxed_str()) };
    agree(
        &format!("/apis/apps/v1/namespaces/{ns}/deployments"),
        &deployment,
        &CrdSchemas::default(),
        &[
            ("/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
            (at("/resources/limits/cpu"), json!(1)),
            (at("/livenessProbe/httpGet/port"), json!("http")),
            (at("/env"), Value::Null),
            ("/metadata/creationTimestamp", Value::Null),
            ("/spec/template/spec/nodeSelector", json!({"x": "y"})),
            ("/status", json!({})),
        ],
        &[
            ("/spec/replica", json!(2)),
            ("/spec/replicas", json!("2")),
            ("/spec/replicas", json!(2.5)),
            ("/spec/replicas", json!(3_000_000_000_u64)),
            ("/spec/strategy/rollingUpdate/maxSurge", json!(true)),
            ("/metadata/labels/a.b~1c", json!(1)),
            ("/metadata/lables", json!({})),
            (at("/imagee"), json!("x")),
            (at("/ports/0/containerPort"), json!("80")),
            (at("/ports"), json!({"containerPort": 80})),
            (at("/env/0/value"), json!(1)),
            (at("/env/0/value"), json!(true)),
            (at("/resources/limits/cpu"), json!([1])),
            (at("/resources/limit"), json!({})),
            ("/spec/selector", Value::Null),
            ("/spec/template/spec/containers", Value::Null),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_server_agrees_about_other_kinds() {
    let ns = Cluster::shared().namespace("schema-kinds").await;
    let none = CrdSchemas::default();
    let meta = json!({"name": "a", "namespace": ns});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"a": "YQ=="}, "type": "Opaque"});
    let wrong = [
        ("/data/a", json!(1)),
        ("/datas", json!({})),
        ("/immutable", json!("yes")),
    ];
    agree(
        &format!("/api/v1/namespaces/{ns}/secrets"),
        &secret,
        &none,
        &[("/stringData", json!({"b": "c"}))],
        &wrong,
    )
    .await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    let wrong = [
        ("/spec/ports/0/port", json!("80")),
        ("/spec/port", json!(80)),
        ("/spec/selector", json!([])),
    ];
    agree(
        &format!("/api/v1/namespaces/{ns}/services"),
        &service,
        &none,
        &[("/spec/ports/0/targetPort", json!("http"))],
        &wrong,
    )
    .await;
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": {"schedule": "0 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}}}}}});
    let wrong = [
        ("/spec/schedul", json!("")),
        ("/spec/suspend", json!("no")),
        ("/spec/jobTemplate/spec/template/spec/restart", json!("")),
    ];
    agree(
        &format!("/apis/batch/v1/namespaces/{ns}/cronjobs"),
        &cron,
        &none,
        &[("/spec/suspend", json!(true))],
        &wrong,
    )
    .await;
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": {"rules": [{"host": "a.b", "http": {"paths": [
        {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}});
    let path = "/spec/rules/0/http/paths/0";
    let at = |rest: &str| -> &'static str { Box::leak(format!("{path}{rest}").into_boxed_str()) };
    let wrong = [
        (at("/pathType"), Value::Null),
        (at("/backend/serviceName"), json!("s")),
        (at("/backend/service/port"), json!(80)),
    ];
    agree(
        &format!("/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"),
        &ingress,
        &none,
        &[],
        &wrong,
    )
    .await;
}

#[tokio::test]
async fn the_server_agrees_about_a_custom_kind() {
    let objects = Objects::of(Cluster::shared()).await;
    let ns = Cluster::shared().namespace("schema-custom").await;
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 5}, "mode": {"type": "string", "enum": ["a", "b"]},
        "port": {"x-kubernetes-int-or-string": true}, "none": {"type": "object"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"n": {"type": "integer"}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "names": {"type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 1}},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "fittings.schema.test"},
        "spec": {"group": "schema.test", "scope": "Namespaced", "names": {"kind": "Fitting", "plural": "fittings", "singular": "fitting", "listKind": "FittingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": spec}}}}]}});
    let mut known = CrdSchemas::default();
    assert_eq!(ours(&crd, &known), Vec::<String>::new());
    known.add(crd.as_object().unwrap());
    objects
        .create_at("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd)
        .await;
    let fitting = json!({"apiVersion": "schema.test/v1", "kind": "Fitting", "metadata": {"name": "a", "namespace": ns},
        "spec": {"size": 1, "free": {}, "map": {}, "none": {}, "inner": {"apiVersion": "v1", "kind": "Pod"}}});
    let collection = format!("/apis/schema.test/v1/namespaces/{ns}/fittings");
    let client = Cluster::shared().client().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while server(&client, &collection, &fitting).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "the kind is not served");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    agree(
        &collection,
        &fitting,
        &known,
        &[
            ("/spec/port", json!("http")),
            ("/spec/port", json!(80)),
            ("/spec/free/x", json!([1])),
            ("/spec/map/x", json!("y")),
            ("/spec/names", json!(["a"])),
            ("/spec/inner/metadata", json!({"name": "x"})),
        ],
        &[
            ("/spec/sise", json!(1)),
            ("/spec/size", json!(6)),
            ("/spec/size", json!("1")),
            ("/spec/mode", json!("c")),
            ("/spec/port", json!([])),
            ("/spec/free/n", json!("x")),
            ("/spec/map/x", json!(1)),
            ("/spec/none/x", json!(1)),
            ("/spec/names", json!(["a", "b", "c"])),
            ("/spec/names", json!([""])),
            ("/spec/inner/x", json!(1)),
            ("/spec", Value::Null),
            ("/metadata/labels", json!({"a": 1})),
            ("/extra", json!(1)),
        ],
    )
    .await;
}

#[test]
fn the_schemas_are_of_the_kubernetes_that_the_tests_run_on() {
    let parts = include_str!("../../../../../scripts/parts");
    assert!(parts.contains(&format!("kubernetes={}\n", BuiltIn::new().version())));
}

#[test]
#[ignore = "reads Kubernetes' Go module: make test-all"]
fn the_schemas_are_what_kubernetes_says() {
    let script = crate::support::root().join("scripts/kubernetes-schemas");
    let output = Command::new(script).arg("--check").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
