//! The API server judges: what its dry run accepts, KCL accepts. What KCL accepts and the server refuses is counted.

use std::{collections::BTreeMap, fmt::Write as _};

use konverge_kcl_models::{ModelRoot, read_crds, read_openapi};
use konverge_testkit::{
    cluster::Cluster,
    performance,
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

/// The answers about the objects of a kind, or of several.
#[derive(Default)]
struct Answers {
    accepted: u64,
    refused: u64,
    /// What KCL accepts and the server refuses, by the keyword that was broken.
    false_acceptances: BTreeMap<String, u64>,
}

impl Answers {
    fn print(&self, kind: &Kind<'_>) {
        println!(
            "{} of {}: {} accepted and {} refused by both; accepted by KCL alone: {:?}",
            kind.kind, kind.api_version, self.accepted, self.refused, self.false_acceptances
        );
    }

    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        for (keyword, count) in other.false_acceptances {
            *self.false_acceptances.entry(keyword).or_default() += count;
        }
    }
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

/// Compares the answers about random objects of a kind.
async fn compare(client: &Client, core: &mut Core, kind: &Kind<'_>, objects: u64) -> Answers {
    let mut answers = Answers::default();
    for number in 0..objects {
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
        ask_both(client, core, kind, &object, maker.broken, &mut answers).await;
    }
    answers.print(kind);
    answers
}

/// Asks the server and the model about an object.
///
/// # Panics
/// The model refuses what the server accepts.
async fn ask_both(
    client: &Client,
    core: &mut Core,
    kind: &Kind<'_>,
    object: &Value,
    broken: Option<String>,
    answers: &mut Answers,
) {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", kind.path);
    let server = refusal(client, "POST", &path, object).await;
    match (server, core.refusal(kind.package, kind.schema, object)) {
        (None, Some(own)) => panic!("a false refusal of\n{object:#}\n{own}"),
        (Some(_), None) => {
            let keyword = broken.unwrap_or_else(|| "other".to_owned());
            *answers.false_acceptances.entry(keyword).or_default() += 1;
        }
        (None, None) => answers.accepted += 1,
        (Some(_), Some(_)) => answers.refused += 1,
    }
}

/// Valid objects, each with a random value at one place: the server accepts many of them, whose random siblings it
/// refuses.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_accepts_near_valid_objects_kcl_accepts() {
    let client = Cluster::shared().client().await;
    let documents = served_documents(&client).await;
    let (schemas, roots) = (schemas(&documents), read_openapi(&documents).unwrap());
    let mut all = Answers::default();
    for (package, name, path, sample) in samples() {
        let api_version = sample["apiVersion"].as_str().unwrap();
        let mut core = Core::with(roots.clone(), &[name]);
        let definition = created_kinds(&documents)
            .into_iter()
            .find(|(_, created)| created == path);
        let kind = Kind {
            package,
            schema: name,
            path,
            api_version,
            kind: name,
            openapi: &schemas[&definition.unwrap().0],
            schemas: &schemas,
        };
        let mut changeable = kind.openapi.clone();
        let properties = changeable["properties"].as_object_mut().unwrap();
        properties.retain(|name, _| !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
        let mut answers = Answers::default();
        for number in 0..setting("KONVERGE_MODEL_OBJECTS", 10) {
            let mut maker = Maker {
                random: Random::of(seed() ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                schemas: &schemas,
                broken: None,
                fault: if number % 2 == 0 { 0 } else { 8 },
            };
            let object = maker.with_random_place(&changeable, &sample);
            ask_both(&client, &mut core, &kind, &object, maker.broken, &mut answers).await;
        }
        answers.print(&kind);
        all.add(answers);
    }
    assert!(all.accepted > all.refused, "{} accepted", all.accepted);
}

/// Compares the answers about a custom resource whose schema has every keyword.
async fn compare_custom_resource(client: &Client, objects: u64) -> Answers {
    let crd: Value = serde_json::from_str(include_str!("data/sample.json")).unwrap();
    let path = "/apis/models.example.com/v1/samples";
    create(client, &crd, path).await;
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
    compare(client, &mut core, &kind, objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_accepts_of_a_custom_resource_kcl_accepts() {
    compare_custom_resource(&Cluster::shared().client().await, objects()).await;
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
    let schemas = schemas(&documents);
    for (definition, package, api_version, path) in &KINDS {
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
        compare(&client, &mut core, &kind, objects()).await;
    }
}

fn schemas(documents: &[Value]) -> Map<String, Value> {
    let all = documents
        .iter()
        .filter_map(|document| document["components"]["schemas"].as_object());
    all.flatten()
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect()
}

/// The definition and the path of each kind of which objects can be created.
fn created_kinds(documents: &[Value]) -> BTreeMap<String, String> {
    let paths = documents
        .iter()
        .filter_map(|document| document["paths"].as_object());
    let creations = paths.flatten().filter_map(|(path, operations)| {
        let post = operations.get("post")?;
        let body = post["requestBody"]["content"]["*/*"]["schema"]["$ref"].as_str()?;
        // Paths of one namespace come last, and are the ones that hold for a kind with namespaces.
        let path = path.replace("{namespace}", "default");
        (!path.contains('{')).then(|| (body.rsplit('/').next().unwrap().to_owned(), path))
    });
    let mut kinds = BTreeMap::new();
    for (definition, path) in creations {
        let known: &mut String = kinds.entry(definition).or_default();
        if known.is_empty() || path.contains("/namespaces/default/") {
            *known = path;
        }
    }
    kinds
}

/// The root of a kind.
fn root_of<'r>(roots: &'r [ModelRoot], api_version: &str, kind: &str) -> Option<&'r ModelRoot> {
    let title = format!("{kind} of {api_version}");
    roots
        .iter()
        .find(|root| root.kind.is_some() && root.title == title)
}

/// 200 objects of every kind that the server creates. What is published is what this writes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes some minutes; `make test` compares fewer objects of fewer kinds"]
async fn of_every_kind_no_false_refusal_and_few_false_acceptances() {
    let client = Cluster::shared().client().await;
    let objects = setting("KONVERGE_MODEL_OBJECTS", 200);
    let documents = served_documents(&client).await;
    let (schemas, roots) = (schemas(&documents), read_openapi(&documents).unwrap());
    let (mut own, mut count) = (Answers::default(), 0);
    for (definition, path) in created_kinds(&documents) {
        let openapi = &schemas[&definition];
        let group = &openapi["x-kubernetes-group-version-kind"][0];
        let [group, version, kind] =
            ["group", "version", "kind"].map(|key| group[key].as_str().unwrap_or_default());
        let api_version = format!("{group}/{version}");
        let api_version = api_version.trim_start_matches('/');
        // A review has no model: it is an answer, not an object.
        let Some(root) = root_of(&roots, api_version, kind) else {
            continue;
        };
        let package = root.name.package.0.join(".");
        let mut core = Core::with(roots.clone(), &[kind]);
        let kind = Kind {
            package: &package,
            schema: &root.name.name,
            path: &path,
            api_version,
            kind,
            openapi,
            schemas: &schemas,
        };
        own.add(compare(&client, &mut core, &kind, objects).await);
        count += 1;
    }
    assert!(count > 40, "only {count} kinds");
    let custom = compare_custom_resource(&client, objects).await;
    let mut section = format!(
        "## Generated models against the API server\n\n{objects} random objects of each kind, valid and broken, sent to the dry run of Kubernetes 1.34 and checked by the models: {count} kinds of the server, and a custom resource whose schema has every keyword. A model that refuses what the server accepts fails the test: there is none. `KONVERGE_WRITE_PERFORMANCE=1 cargo test -p konverge-kcl-models --test it -- --ignored of_every_kind` writes this.\n\n| | kinds of the server | custom resource |\n|---|---|---|\n"
    );
    let mut row = |what: &str, own: u64, custom: u64| {
        let _ = writeln!(section, "| {what} | {own} | {custom} |");
    };
    row("accepted by both", own.accepted, custom.accepted);
    row("refused by both", own.refused, custom.refused);
    row("refused by the model alone", 0, 0);
    let mut keywords: Vec<&String> = own
        .false_acceptances
        .keys()
        .chain(custom.false_acceptances.keys())
        .collect();
    keywords.sort();
    keywords.dedup();
    for keyword in keywords {
        let of = |answers: &Answers| {
            answers
                .false_acceptances
                .get(keyword)
                .copied()
                .unwrap_or_default()
        };
        let what = match keyword.as_str() {
            "other" => "accepted by the model alone, no keyword broken".to_owned(),
            keyword => format!("accepted by the model alone, `{keyword}` broken"),
        };
        row(&what, of(&own), of(&custom));
    }
    println!("{section}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        performance::write("models-oracle", section.trim_end());
    }
}

/// Valid objects of common kinds: the package, the schema, the path for a create, the object.
fn samples() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}}, "readinessProbe": {"tcpSocket": {"port": "http"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}},
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}}, {"name": "claim", "persistentVolumeClaim": {"claimName": "p"}}]}});
    let mut job = pod.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let workload = |kind: &str, spec: Value| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec});
    let selected = json!({"selector": {"matchLabels": {"app": "web"}}, "template": pod});
    vec![
        (
            "apps.v1",
            "Deployment",
            "/apis/apps/v1/namespaces/default/deployments",
            workload("Deployment", selected.clone()),
        ),
        (
            "apps.v1",
            "DaemonSet",
            "/apis/apps/v1/namespaces/default/daemonsets",
            workload("DaemonSet", selected.clone()),
        ),
        (
            "apps.v1",
            "StatefulSet",
            "/apis/apps/v1/namespaces/default/statefulsets",
            workload("StatefulSet", selected.clone()),
        ),
        (
            "apps.v1",
            "ReplicaSet",
            "/apis/apps/v1/namespaces/default/replicasets",
            workload("ReplicaSet", selected),
        ),
        (
            "batch.v1",
            "CronJob",
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}}),
        ),
        (
            "core.v1",
            "Service",
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"a": "b"}, "ports": [{"name": "a", "port": 80, "targetPort": "http"}]}}),
        ),
        (
            "networking.v1",
            "Ingress",
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
            "spec": {"rules": [{"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
        ),
        (
            "autoscaling.v2",
            "HorizontalPodAutoscaler",
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3}}),
        ),
        (
            "rbac.v1",
            "Role",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "rbac.v1",
            "RoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "default"}]}),
        ),
        (
            "rbac.v1",
            "ClusterRoleBinding",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "a"}]}),
        ),
        (
            "storage.v1",
            "StorageClass",
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}, "provisioner": "a.example.com"}),
        ),
        (
            "scheduling.v1",
            "PriorityClass",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 1}),
        ),
        (
            "core.v1",
            "LimitRange",
            "/api/v1/namespaces/default/limitranges",
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container"}]}}),
        ),
    ]
}

/// Every place in a value that has a key which can be left out.
fn keys(value: &Value) -> Vec<(String, String)> {
    let (mut queue, mut found) = (vec![String::new()], Vec::new());
    while let Some(pointer) = queue.pop() {
        match value.pointer(&pointer).unwrap() {
            Value::Object(fields) => {
                for key in fields.keys() {
                    found.push((pointer.clone(), key.clone()));
                    queue.push(format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")));
                }
            }
            Value::Array(items) => queue.extend((0..items.len()).map(|index| format!("{pointer}/{index}"))),
            _ => {}
        }
    }
    found
}

/// Each property of valid objects is left out once: what the server accepts without it, KCL accepts. Of the properties
/// that a model requires, the server requires each.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_requires_the_server_requires() {
    let client = Cluster::shared().client().await;
    let samples = samples();
    let kinds: Vec<&str> = samples.iter().map(|(_, kind, ..)| *kind).collect();
    let mut core = Core::with(read_openapi(&served_documents(&client).await).unwrap(), &kinds);
    let mut required = 0;
    for (package, schema, path, object) in samples {
        let path = format!("{path}?dryRun=All&fieldValidation=Strict");
        assert_eq!(refusal(&client, "POST", &path, &object).await, None, "{schema}");
        assert_eq!(core.refusal(package, schema, &object), None, "{schema}");
        for (pointer, key) in keys(&object) {
            let mut without = object.clone();
            without
                .pointer_mut(&pointer)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(&key);
            // A model fills in what says the kind.
            if pointer.is_empty() && ["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
                continue;
            }
            if let Some(own) = core.refusal(package, schema, &without) {
                let server = refusal(&client, "POST", &path, &without).await;
                assert!(server.is_some(), "{schema} {pointer}/{key}: {own}");
                required += 1;
            }
        }
    }
    assert!(required > 60, "{required}");
}
