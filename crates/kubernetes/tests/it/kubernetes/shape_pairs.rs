//! From one shape of an object to another: list items with other keys, other values of an enumeration, other branches
//! of a one-of. Which shapes there are is read from the published schema, and found by asking the server what it
//! accepts. Each pair is owned before by us, by `kubectl` and by Helm: it becomes the other shape, and then nothing is
//! left to do, or a refusal says whose fields are in the way.
//!
//! `KONVERGE_PAIRS` sets how many of the pairs are tried, spread over all of them.

use std::collections::BTreeMap;

use http::Request;
use konverge_base::model::{diff, plan::Action};
use serde_json::{Map, Value, json};

use crate::support::{
    cluster::Cluster,
    objects::{self, Objects},
    random::setting,
    stack::{TestStack, action},
};

/// The objects whose parts take other shapes. What a part may hold besides comes from the schema.
fn bases(ns: &str) -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": ns});
    let pod = |labels: Value| {
        let spec = json!({
            "containers": [{"name": "main", "image": "main:1", "env": [{"name": "A", "value": "1"}],
                "ports": [{"name": "http", "containerPort": 8080}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"port": 8080}}, "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}],
            "initContainers": [{"name": "init", "image": "init:1"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "imagePullSecrets": [{"name": "pull"}],
            "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}]});
        json!({"metadata": {"labels": labels}, "spec": spec})
    };
    let small = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    let selected = |name: &str| json!({"matchLabels": {"app": name}});
    let workload = |kind: &str, name: &str, template: Value, more: Value| {
        let mut spec = json!({"selector": selected(name), "template": template});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": meta(name), "spec": spec})
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    vec![
        workload(
            "Deployment",
            "web",
            pod(json!({"app": "web"})),
            json!({"strategy": {"type": "RollingUpdate"}}),
        ),
        workload(
            "StatefulSet",
            "db",
            small(json!({"app": "db"})),
            json!({"serviceName": "db", "updateStrategy": {"type": "RollingUpdate"}}),
        ),
        workload(
            "DaemonSet",
            "agent",
            small(json!({"app": "agent"})),
            json!({"updateStrategy": {"type": "RollingUpdate"}}),
        ),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("cron"), "spec": {"schedule": "0 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c:1"}]}}}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("service"), "spec": {"selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("runner"), "secrets": [{"name": "token"}]}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("budget"),
            "spec": {"minAvailable": 1, "selector": selected("web")}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("ingress"),
            "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}),
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta("scaler"),
            "spec": {"maxReplicas": 4, "scaleTargetRef": target, "behavior": {"scaleDown": {"selectPolicy": "Max"}}}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": ns},
            "webhooks": [{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
                "clientConfig": {"url": "https://example.com/"}, "namespaceSelector": {"matchLabels": {"none": "of-them"}}}]}),
    ]
}

/// A pair of shapes of one object.
struct Pair {
    title: String,
    before: Value,
    after: Value,
}

/// The published schemas of a group and version.
struct Schemas(Value);

impl Schemas {
    async fn of(client: &kube::Client, api_version: &str) -> Self {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let request = Request::get(format!("/openapi/v3/{root}/{api_version}"))
            .body(Vec::new())
            .unwrap();
        Self(client.request(request).await.unwrap())
    }

    fn of_kind(&self, kind: &str) -> &Value {
        let all = self.0["components"]["schemas"].as_object().unwrap();
        let is = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            schema["properties"]["metadata"].is_object()
                && kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == kind))
        };
        all.values()
            .find(is)
            .unwrap_or_else(|| panic!("no schema of {kind}"))
    }

    /// The schema behind references.
    fn resolved<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let reference = schema["$ref"]
            .as_str()
            .or_else(|| schema["allOf"][0]["$ref"].as_str());
        match reference.and_then(|reference| reference.rsplit('/').next()) {
            Some(name) => self.resolved(&self.0["components"]["schemas"][name]),
            None => schema,
        }
    }

    /// Values that a field may have: with what it requires, and with what its name suggests besides.
    fn samples(&self, name: &str, schema: &Value) -> Vec<Value> {
        let own = schema;
        let schema = self.resolved(schema);
        if let Some(values) = own["enum"].as_array().or_else(|| schema["enum"].as_array()) {
            return values.iter().filter(|value| *value != "").cloned().collect();
        }
        match schema["type"].as_str() {
            Some("object") => [false, true]
                .iter()
                .map(|more| self.object(schema, *more))
                .collect(),
            Some("array") => vec![json!([self
                .samples(name, &schema["items"])
                .pop()
                .unwrap_or(json!({}))])],
            _ if schema["format"] == "int-or-string" => vec![json!(1)],
            Some("integer") => vec![json!(1)],
            Some("boolean") => vec![json!(true)],
            _ => vec![suggested(name).unwrap_or(json!("x"))],
        }
    }

    fn object(&self, schema: &Value, suggestions: bool) -> Value {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut object = Map::new();
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let is_wanted = required.contains(&name.as_str()) || (suggestions && suggested(name).is_some());
            if is_wanted && let Some(value) = self.samples(name, below).pop() {
                object.insert(name.clone(), suggested(name).unwrap_or(value));
            }
        }
        Value::Object(object)
    }
}

/// Values that validation wants of some names.
fn suggested(name: &str) -> Option<Value> {
    Some(match name {
        "name" | "secretName" | "claimName" | "key" | "driver" => json!("x"),
        "fieldPath" => json!("metadata.name"),
        "resource" => json!("limits.cpu"),
        "port" | "number" => json!(80),
        "path" | "mountPath" => json!("/x"),
        "host" | "ip" => json!("10.0.0.9"),
        "seconds" => json!(1),
        "command" => json!(["false"]),
        "localhostProfile" => json!("x.json"),
        _ => return None,
    })
}

/// Finds pairs of shapes of an object by asking the server.
struct Search<'a> {
    client: &'a kube::Client,
    schemas: &'a Schemas,
    base: &'a Value,
    pairs: Vec<Pair>,
}

impl Search<'_> {
    /// Returns true if the server would create the object, and keep all of it.
    async fn is_accepted(&self, object: &Value) -> bool {
        let mut object = object.clone();
        object["metadata"]["name"] = json!("tried");
        let uri = format!("{}?dryRun=All&fieldManager=tried", objects::path(&object, false));
        let request = Request::post(uri).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        let answer = self.client.request::<Value>(request).await;
        answer.is_ok_and(|made| holds(&made, &object, false))
    }

    fn with(&self, at: &str, value: Option<&Value>) -> Value {
        let mut object = self.base.clone();
        match value {
            Some(value) => *object.pointer_mut(at).unwrap() = value.clone(),
            None => {
                let (around, name) = at.rsplit_once('/').unwrap();
                object
                    .pointer_mut(around)
                    .unwrap()
                    .as_object_mut()
                    .unwrap()
                    .shift_remove(name);
            }
        }
        object
    }

    async fn add(&mut self, title: String, before: Value, after: Value) {
        if before != after && self.is_accepted(&before).await && self.is_accepted(&after).await {
            self.pairs.push(Pair { title, before, after });
        }
    }

    /// Looks at a value of the base, and below it.
    async fn look(&mut self, at: String, value: Value, schema: Value) {
        let schema = self.schemas.resolved(&schema).clone();
        match value {
            Value::Object(map) => {
                self.branches(&at, &map, &schema).await;
                for (name, below) in map {
                    if ["metadata", "apiVersion", "kind", "selector"].contains(&name.as_str()) {
                        continue;
                    }
                    let schema = schema["properties"][&name].clone();
                    Box::pin(self.look(format!("{at}/{name}"), below, schema)).await;
                }
            }
            Value::Array(items) => {
                if schema["x-kubernetes-list-type"] == "map" {
                    self.keys(&at, &items, &schema).await;
                }
                for (place, item) in items.into_iter().enumerate() {
                    Box::pin(self.look(format!("{at}/{place}"), item, schema["items"].clone())).await;
                }
            }
            _ => {}
        }
    }

    /// Pairs of a struct: each value of an enumeration, and branches that exclude each other.
    async fn branches(&mut self, at: &str, map: &Map<String, Value>, schema: &Value) {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let optional: Vec<_> = properties
            .iter()
            .filter(|(name, _)| !required.contains(&name.as_str()))
            .collect();
        if at.is_empty() {
            return;
        }
        // The struct with what it requires and no branch.
        let bare: Map<String, Value> = map
            .iter()
            .filter(|(name, _)| required.contains(&name.as_str()) || *name == "name")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut accepted: Vec<(String, Value)> = Vec::new();
        for (name, below) in optional {
            let is_enum = below["enum"].is_array() || self.schemas.resolved(below)["enum"].is_array();
            let mut samples = self.schemas.samples(name, below);
            samples.dedup();
            if is_enum {
                self.values(at, map, name, &samples).await;
            }
            for sample in samples {
                let mut one = bare.clone();
                one.insert(name.clone(), sample.clone());
                let is_known = accepted.iter().any(|(known, _)| known == name);
                if !is_known && self.is_accepted(&self.with(at, Some(&Value::Object(one)))).await {
                    accepted.push((name.clone(), sample));
                }
            }
        }
        let mut of_one = Vec::new();
        for (n, (first, a)) in accepted.iter().enumerate() {
            for (second, b) in &accepted[n + 1..] {
                let mut both = bare.clone();
                both.insert(first.clone(), a.clone());
                both.insert(second.clone(), b.clone());
                if !self.is_accepted(&self.with(at, Some(&Value::Object(both)))).await {
                    of_one.push(((first, a), (second, b)));
                }
            }
        }
        // Of many branches each one is left once, and taken once.
        let mut seen: BTreeMap<&String, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (one, other) in of_one {
            if seen.get(one.0).is_none_or(|times| *times < 2) {
                *seen.entry(one.0).or_default() += 1;
                chosen.push((one, other));
            }
        }
        for ((first, a), (second, b)) in chosen {
            let with = |name: &String, value: &Value| {
                let mut one = bare.clone();
                one.insert(name.clone(), value.clone());
                self.with(at, Some(&Value::Object(one)))
            };
            let (one, other) = (with(first, a), with(second, b));
            self.add(format!("{at}: {first} -> {second}"), one.clone(), other.clone())
                .await;
            self.add(format!("{at}: {second} -> {first}"), other, one).await;
        }
        // What the server fills in where the Spec has nothing.
        let nothing = self.with(at, Some(&Value::Object(bare.clone())));
        for (name, value) in &accepted {
            let mut one = bare.clone();
            one.insert(name.clone(), value.clone());
            let one = self.with(at, Some(&Value::Object(one)));
            self.add(format!("{at}: nothing -> {name}"), nothing.clone(), one)
                .await;
        }
    }

    /// Pairs of an enumeration: nothing and each value, and each value and the next.
    async fn values(&mut self, at: &str, map: &Map<String, Value>, name: &str, values: &[Value]) {
        let of = |value: Option<&Value>| {
            let mut one = map.clone();
            match value {
                Some(value) => drop(one.insert(name.to_owned(), value.clone())),
                None => drop(one.shift_remove(name)),
            }
            self.with(at, Some(&Value::Object(one)))
        };
        let objects: Vec<_> = values.iter().map(|value| (value, of(Some(value)))).collect();
        let nothing = of(None);
        for (n, (value, object)) in objects.iter().enumerate() {
            let (next, after) = &objects[(n + 1) % objects.len()];
            self.add(
                format!("{at}/{name}: nothing -> {value}"),
                nothing.clone(),
                object.clone(),
            )
            .await;
            self.add(
                format!("{at}/{name}: {value} -> {next}"),
                object.clone(),
                after.clone(),
            )
            .await;
        }
    }

    /// Pairs of a list with keys: an item with another value of each key.
    async fn keys(&mut self, at: &str, items: &[Value], schema: &Value) {
        for key in schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let key = key.as_str().unwrap();
            let mut changed = items.to_vec();
            changed[0][key] = match items[0].get(key) {
                Some(Value::Number(number)) => json!(number.as_u64().unwrap() + 1),
                Some(Value::String(text)) if text == "ScheduleAnyway" => json!("DoNotSchedule"),
                Some(Value::String(text)) if text.contains('.') => json!(text.replacen(['a', '1'], "2", 1)),
                Some(Value::String(text)) => json!(format!("{text}2")),
                _ => json!("UDP"),
            };
            let after = self.with(at, Some(&Value::Array(changed)));
            self.add(format!("{at}: another {key}"), self.base.clone(), after)
                .await;
        }
    }
}

/// Returns true if an object has everything of a shape, and `exactly` no other items.
fn holds(live: &Value, shape: &Value, exactly: bool) -> bool {
    match (live, shape) {
        (Value::Object(live), Value::Object(shape)) => shape
            .iter()
            .all(|(name, below)| live.get(name).is_some_and(|live| holds(live, below, exactly))),
        (Value::Array(live), Value::Array(shape)) => {
            let has = |one: &Value| live.iter().any(|live| holds(live, one, exactly));
            (!exactly || live.len() == shape.len()) && shape.iter().all(has)
        }
        _ => diff::same(live, shape),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    Us,
    Kubectl,
    Helm,
}

#[tokio::test]
async fn every_pair_of_shapes_is_a_change_or_a_refusal_that_names_the_way() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("shapes").await, Objects::of(cluster).await);
    let client = cluster.client().await;
    let mut pairs = Vec::new();
    for base in bases(&ns) {
        let schemas = Schemas::of(&client, base["apiVersion"].as_str().unwrap()).await;
        let kind = base["kind"].as_str().unwrap();
        let mut search = Search {
            client: &client,
            schemas: &schemas,
            base: &base,
            pairs: Vec::new(),
        };
        assert!(search.is_accepted(&base).await, "{kind}");
        search
            .look(String::new(), base.clone(), schemas.of_kind(kind).clone())
            .await;
        let found = search.pairs;
        println!("{kind}: {} pairs", found.len());
        pairs.extend(found);
    }
    let all = pairs.len();
    assert!(all > 100, "the search has lost its teeth: {all}");
    let tried = setting("KONVERGE_PAIRS", 40);
    let step = all.div_ceil(usize::try_from(tried).unwrap()).max(1);
    let pairs: Vec<_> = pairs.into_iter().step_by(step).collect();
    let mut refused: BTreeMap<Before, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, pair) in pairs.iter().enumerate() {
        for before in [Before::Us, Before::Kubectl, Before::Helm] {
            let name = format!("s{number}-{before:?}").to_lowercase();
            let named = |shape: &Value| {
                let mut object = shape.clone();
                object["metadata"]["name"] = json!(name);
                object
            };
            let (first, second) = (named(&pair.before), named(&pair.after));
            let mut stack = TestStack::new(&format!("shapes-{name}"), cluster.kubeconfig());
            match before {
                Before::Us => drop(stack.apply(std::slice::from_ref(&first)).await),
                Before::Kubectl => objects.create_as(&first, "kubectl-client-side-apply").await,
                Before::Helm => objects.apply_as(&first, "helm").await,
            }
            let title = format!("{before:?} {} {}", first["kind"].as_str().unwrap(), pair.title);
            let plan = stack.plan(std::slice::from_ref(&second)).await;
            if let Some((_, failure)) = plan.failures.first() {
                *refused.entry(before).or_default() += 1;
                let names_the_way = failure.hints.iter().any(|hint| hint.contains("`helm`"));
                if before != Before::Helm || !names_the_way {
                    wrong.push(format!("{title}: {failure} {:?}", failure.hints));
                }
            } else {
                let planned = action(&plan, &second);
                let outcome = stack.carry_out(plan).await;
                let live = objects.get(&second).await.unwrap_or_default();
                let again = stack.plan(std::slice::from_ref(&second)).await;
                let rest = action(&again, &second);
                if outcome.error.is_some() || rest != Action::Unchanged || !again.failures.is_empty() {
                    wrong.push(format!(
                        "{title}: {planned:?} then {rest:?}: {:?} {:?} {:?}",
                        outcome.error, again.failures, again.public.resources
                    ));
                } else if before != Before::Helm && !holds(&live, &second, before == Before::Us) {
                    wrong.push(format!("{title}: {planned:?}: {second} {live}"));
                }
            }
            objects.delete(&second).await;
        }
    }
    let tried = pairs.len();
    println!("{tried} of {all} pairs of shapes, each owned by three; refused: {refused:?}");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        tried * 3,
        wrong.join("\n")
    );
}
