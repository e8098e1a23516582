//! The API server judges: what its dry run accepts, KCL accepts. What KCL accepts and the server refuses is counted.

use std::collections::BTreeMap;

use konverge_models::{read_crds, read_openapi};
use konverge_testkit::{
    cluster::Cluster,
    random::{Random, setting},
};
use kube::Client;
use serde_json::{Map, Value, json};

use crate::{core::Core, random_objects::Maker};

/// Each kind gets so many objects; `KONVERGE_MODEL_OBJECTS` sets another number.
fn objects() -> u64 {
    setting("KONVERGE_MODEL_OBJECTS", 25)
}

fn seed() -> u64 {
    setting("KONVERGE_MODEL_SEED", 20_261_126)
}

/// Sends an object; returns why the server refuses it.
async fn refusal(client: &Client, method: &str, path: &str, object: &Value) -> Option<String> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// Creates a CRD and waits until its path is served.
async fn create(client: &Client, crd: &Value, path: &str) {
    let created = refusal(
        client,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        crd,
    )
    .await;
    assert!(created.is_none_or(|why| why.contains("already exists")));
    for _ in 0..600 {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        if client.request::<Value>(request).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{path} is not served");
}

/// One kind, with what is compared.
struct Kind<'a> {
    package: &'a str,
    schema: &'a str,
    path: &'a str,
    api_version: &'a str,
    kind: &'a str,
    openapi: &'a Value,
    schemas: &'a Map<String, Value>,
}

/// Compares the answers about random objects of a kind. Returns the false acceptances by the keyword that was broken.
async fn compare(client: &Client, core: &mut Core, kind: &Kind<'_>) -> BTreeMap<String, u64> {
    let mut false_acceptances = BTreeMap::new();
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..objects() {
        let seed = seed() ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut maker = Maker {
            random: Random::of(seed),
            schemas: kind.schemas,
            broken: None,
            fault: if number % 3 == 0 { 0 } else { 8 },
        };
        let mut object = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": format!("o{number}")}});
        for (name, inner) in kind.openapi["properties"].as_object().unwrap() {
            if !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
                object[name] = maker.value(inner, 1);
            }
        }
        let path = format!("{}?dryRun=All&fieldValidation=Strict", kind.path);
        let server = refusal(client, "POST", &path, &object).await;
        let own = core.refusal(kind.package, kind.schema, &object);
        match (server, own) {
            (None, Some(own)) => panic!("seed {seed}: a false refusal of\n{object:#}\n{own}"),
            (Some(_), None) => {
                *false_acceptances
                    .entry(maker.broken.unwrap_or_else(|| "other".to_owned()))
                    .or_default() += 1
            }
            (None, None) => accepted += 1,
            (Some(_), Some(_)) => refused += 1,
        }
    }
    println!(
        "{}: {accepted} accepted and {refused} refused by both; accepted by KCL alone: {false_acceptances:?}",
        kind.kind
    );
    false_acceptances
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_accepts_of_a_custom_resource_kcl_accepts() {
    let cluster = Cluster::shared();
    let client = cluster.client().await;
    let crd: Value = serde_json::from_str(include_str!("data/sample.json")).unwrap();
    let path = "/apis/models.example.com/v1/samples";
    create(&client, &crd, path).await;
    let mut core = Core::with(read_crds([&crd]).unwrap(), &[]);
    core.check_all();
    let kind = Kind {
        package: "models_example_com.v1",
        schema: "Sample",
        path,
        api_version: "models.example.com/v1",
        kind: "Sample",
        openapi: &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        schemas: &Map::new(),
    };
    compare(&client, &mut core, &kind).await;
}

/// Kinds of the server with the paths for a create.
const KINDS: [(&str, &str, &str, &str); 6] = [
    (
        "io.k8s.api.core.v1.ConfigMap",
        "core.v1",
        "v1",
        "/api/v1/namespaces/default/configmaps",
    ),
    (
        "io.k8s.api.core.v1.LimitRange",
        "core.v1",
        "v1",
        "/api/v1/namespaces/default/limitranges",
    ),
    (
        "io.k8s.api.core.v1.Service",
        "core.v1",
        "v1",
        "/api/v1/namespaces/default/services",
    ),
    (
        "io.k8s.api.apps.v1.Deployment",
        "apps.v1",
        "apps/v1",
        "/apis/apps/v1/namespaces/default/deployments",
    ),
    (
        "io.k8s.api.networking.v1.NetworkPolicy",
        "networking.v1",
        "networking.k8s.io/v1",
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    ),
    (
        "io.k8s.api.rbac.v1.Role",
        "rbac.v1",
        "rbac.authorization.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    ),
];

async fn served_documents(client: &Client) -> Vec<Value> {
    let index = get(client, "/openapi/v3").await;
    let mut documents = Vec::new();
    for (group, entry) in index["paths"].as_object().unwrap() {
        if group.starts_with("api/") || group.matches('/').count() == 2 {
            documents.push(get(client, entry["serverRelativeURL"].as_str().unwrap()).await);
        }
    }
    documents
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_accepts_of_its_own_kinds_kcl_accepts_and_all_kinds_load() {
    let client = Cluster::shared().client().await;
    let documents = served_documents(&client).await;
    let roots = read_openapi(&documents).unwrap();
    let count = roots.iter().filter(|root| root.kind.is_some()).count();
    assert!(count > 60, "only {count} kinds");
    let mut core = Core::with(roots, &[]);
    core.check_all();
    let mut schemas = Map::new();
    for document in &documents {
        schemas.extend(
            document["components"]["schemas"]
                .as_object()
                .cloned()
                .unwrap_or_default(),
        );
    }
    let report: Vec<_> = KINDS.iter().collect();
    for (definition, package, api_version, path) in report {
        let name = definition.rsplit('.').next().unwrap();
        let kind = Kind {
            package,
            schema: name,
            path,
            api_version,
            kind: name,
            openapi: &schemas[*definition],
            schemas: &schemas,
        };
        compare(&client, &mut core, &kind).await;
    }
}

/// A required property that is left out of a valid object is refused by both, or by neither.
#[tokio::test(flavor = "multi_thread")]
async fn every_required_property_of_a_deployment_is_required_by_the_server() {
    let client = Cluster::shared().client().await;
    let documents = served_documents(&client).await;
    let mut core = Core::with(read_openapi(&documents).unwrap(), &["Deployment"]);
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1",
            "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments?dryRun=All&fieldValidation=Strict";
    let mut paths = vec![String::new()];
    let mut checked = 0;
    while let Some(pointer) = paths.pop() {
        let part = object.pointer(&pointer).unwrap();
        let keys: Vec<String> = match part {
            Value::Object(fields) => fields.keys().cloned().collect(),
            Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
            _ => continue,
        };
        for key in keys {
            let inner = format!("{pointer}/{key}");
            if part.is_object() && !pointer.is_empty() {
                let mut without = object.clone();
                without
                    .pointer_mut(&pointer)
                    .unwrap()
                    .as_object_mut()
                    .unwrap()
                    .remove(&key);
                let server = refusal(&client, "POST", path, &without).await;
                let own = core.refusal("apps.v1", "Deployment", &without);
                assert!(server.is_some() || own.is_none(), "{inner}: {own:?}");
                checked += 1;
            }
            paths.push(inner);
        }
    }
    assert!(checked > 10, "{checked}");
    assert_eq!(refusal(&client, "POST", path, &object).await, None);
    assert_eq!(core.refusal("apps.v1", "Deployment", &object), None);
}
