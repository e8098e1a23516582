//! What a preview says an object becomes is what it is after apply, and *unchanged* is never said of an object that the
//! server would change: random edits to real manifests, against a real API server.
//!
//! `KONVERGE_EDITS` sets how many edits are tried, `KONVERGE_SEED` repeats a run.

use http::Request;
use konverge_base::model::{FieldPath, diff, masked_value, plan::Action, spec::Resource};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random::{Random, setting},
    stack::{TestStack, action, id, resource},
};

fn manifests(ns: &str) -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": ns, "labels": {"app": name, "team": "a"}, "annotations": {"note": "x"}});
    let pod = |name: &str| {
        json!({"metadata": {"labels": {"app": name}}, "spec": {"serviceAccountName": "runner", "terminationGracePeriodSeconds": 20,
        "initContainers": [{"name": "init", "image": "init:1", "command": ["sh", "-c", "true"]}],
        "containers": [{"name": "main", "image": "main:1", "args": ["--a", "--b"], "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "p"}}}], "ports": [{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "0.1"}}, "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "tmp", "mountPath": "/tmp"}], "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}},
            {"name": "side", "image": "side:1"}],
        "volumes": [{"name": "config", "configMap": {"name": "config"}}, {"name": "tmp", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {"os": "linux"},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": name}}}}]}}}})
    };
    let selector = |name: &str| json!({"matchLabels": {"app": name}});
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("config"), "data": {"a": "1", "b.yaml": "x: 1\n"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("secret"), "type": "Opaque", "stringData": {"p": "a-secret-value"}, "data": {"q": "YWJj"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("runner"), "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "pull"}]}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("service"), "spec": {"type": "ClusterIP", "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web"), "spec": {"replicas": 2, "selector": selector("web"), "template": pod("web"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("db"), "spec": {"serviceName": "db", "replicas": 1, "selector": selector("db"), "template": pod("db"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta("agent"), "spec": {"selector": selector("agent"), "template": pod("agent")}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("cron"), "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c:1"}]}}}}}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("ingress"), "spec": {"rules": [{"host": "a.example.com", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "service", "port": {"number": 80}}}}]}}], "tls": [{"hosts": ["a.example.com"], "secretName": "tls"}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta("policy"), "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 80}], "from": [{"podSelector": {}}]}], "egress": [{}], "policyTypes": ["Ingress", "Egress"]}}),
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta("scaler"), "spec": {"minReplicas": 1, "maxReplicas": 4, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("budget"), "spec": {"minAvailable": 1, "selector": selector("web")}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta("role"), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta("binding"), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "role"}, "subjects": [{"kind": "ServiceAccount", "name": "runner", "namespace": ns}]}),
    ]
}

/// Every place of an object that an edit may touch: not what names it.
fn places(value: &Value, at: &FieldPath, found: &mut Vec<String>) {
    if !at.is_root()
        && ![
            "/apiVersion",
            "/kind",
            "/metadata",
            "/metadata/name",
            "/metadata/namespace",
            "/spec",
        ]
        .contains(&at.as_str())
    {
        found.push(at.to_string());
    }
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, below)| places(below, &at.join(key), found)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, below)| places(below, &at.item(n), found)),
        _ => {}
    }
}

fn edit(object: &mut Value, random: &mut Random) -> String {
    let mut all = Vec::new();
    places(object, &FieldPath::root(), &mut all);
    if all.is_empty() {
        return "nothing left to edit".to_owned();
    }
    let place = random.pick(&all).clone();
    let kind = random.below(5);
    if kind == 0 {
        let (parent, last) = place.rsplit_once('/').unwrap();
        match object.pointer_mut(parent).unwrap() {
            Value::Object(map) => drop(map.shift_remove(&last.replace("~1", "/").replace("~0", "~"))),
            Value::Array(items) => drop(items.remove(last.parse().unwrap())),
            _ => {}
        }
        return format!("remove {place}");
    }
    let texts = ["edited", "x", "main:2", "http", "8080", "yes"];
    let target = object.pointer_mut(&place).unwrap();
    match target {
        Value::Number(number) => *target = json!(number.as_i64().unwrap_or(1) + 1),
        Value::Bool(flag) => *target = json!(!*flag),
        Value::String(text) if kind == 1 => *target = json!(format!("{text}-more")),
        Value::String(_) => *target = json!(random.pick(&texts)),
        Value::Array(items) if kind == 1 && items.len() > 1 => items.reverse(),
        Value::Array(items) if !items.is_empty() && kind == 2 => {
            let mut copy = random.pick(items).clone();
            for key in ["name", "containerPort", "port", "mountPath", "host"] {
                match copy.get(key).cloned() {
                    Some(Value::String(text)) => copy[key] = json!(format!("{text}2")),
                    Some(Value::Number(number)) => copy[key] = json!(number.as_i64().unwrap() + 1),
                    _ => {}
                }
            }
            let at = random.below(items.len() + 1);
            items.insert(at, copy);
        }
        Value::Array(items) => drop(items.pop()),
        Value::Object(map) => {
            let key = random.pick(&["extra", "team", "note", "memory", "b"]).to_string();
            map.insert(key, json!(random.pick(&texts)));
        }
        Value::Null => *target = json!(1),
    }
    format!("edit {place}")
}

/// The object without what the server alone keeps.
fn meaning(mut object: Value) -> Value {
    object.as_object_mut().unwrap().shift_remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in [
        "managedFields",
        "resourceVersion",
        "uid",
        "generation",
        "creationTimestamp",
    ] {
        metadata.shift_remove(key);
    }
    object
}

/// Somebody who reads the object: only of those that are read it is kept what they become.
fn reader(ns: &str, id: &str) -> Resource {
    let mut reader = resource(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "reader", "namespace": ns}}),
    );
    let name = format!("$kusion_path.{id}.metadata.name");
    reader.attributes.insert("data".to_owned(), json!({"name": name}));
    reader
}

#[tokio::test]
async fn what_is_previewed_is_what_is_applied() {
    let seed = setting("KONVERGE_SEED", 20_260_101);
    let edits = setting("KONVERGE_EDITS", 80);
    println!("KONVERGE_SEED={seed} KONVERGE_EDITS={edits}");
    let mut random = Random::of(seed);
    let cluster = Cluster::shared();
    let ns = cluster.namespace("fidelity").await;
    let objects = Objects::of(cluster).await;
    let client = cluster.client().await;
    let mut stack = TestStack::new("fidelity", cluster.kubeconfig());
    let original = manifests(&ns);
    let mut current = original.clone();
    stack.apply(&current).await;
    let (mut accepted, mut unchanged) = (0, 0);
    for round in 0..edits {
        let mut next = current.clone();
        let chosen = random.below(next.len());
        let mut what = "put back".to_owned();
        // Now and then as it was: edits only take away in the end.
        if random.below(10) == 0 {
            next[chosen] = original[chosen].clone();
        } else {
            what = edit(&mut next[chosen], &mut random);
            if random.below(3) == 0 {
                what = format!("{what}; {}", edit(&mut next[chosen], &mut random));
            }
        }
        let title = format!("seed {seed}, round {round}: {} {what}", id(&current[chosen]));
        if id(&next[chosen]) != id(&current[chosen]) {
            continue;
        }
        let mut wanted = crate::support::stack::spec(&next);
        wanted.resources.push(reader(&ns, &id(&next[chosen])));
        let Ok(plan) = stack.try_plan(&wanted).await else {
            continue;
        };
        if !plan.failures.is_empty() {
            continue;
        }
        let planned = action(&plan, &next[chosen]);
        if planned == Action::Unchanged {
            unchanged += 1;
            let live = objects.get(&next[chosen]).await.unwrap();
            let would = dry_run(&client, &stack, &next[chosen]).await;
            assert!(
                diff::same(&meaning(live), &meaning(would)),
                "{title}: said to be unchanged"
            );
        }
        let expected = plan
            .expected_object(&id(&next[chosen]).parse().unwrap())
            .unwrap()
            .clone();
        let outcome = stack.carry_out(plan).await;
        assert!(outcome.error.is_none(), "{title}: {outcome:?}");
        let live = meaning(objects.get(&next[chosen]).await.unwrap());
        if planned != Action::Replace {
            let differences: Vec<_> = diff::differences(&meaning(expected), &live)
                .into_iter()
                .filter(|d| {
                    d.from
                        .as_ref()
                        .is_none_or(|from| !masked_value::holds_unknown(from))
                })
                .collect();
            assert!(differences.is_empty(), "{title}: {planned:?} {differences:?}");
        }
        accepted += 1;
        current = next;
        let again = stack.try_plan(&wanted).await.unwrap();
        assert_eq!(
            again.public.summary.unchanged,
            current.len() + 1,
            "{title}: {:?}",
            again.public
        );
    }
    println!("{accepted} of {edits} edits were accepted, {unchanged} of them without effect");
    assert!(
        accepted * 4 > edits,
        "most edits are refused: the generator has lost its teeth"
    );
}

/// What the server itself says an apply would make of an object.
async fn dry_run(client: &kube::Client, stack: &TestStack, object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"]["konverge/stack"] = json!(stack.id.as_str());
    if let Some(texts) = object.as_object_mut().unwrap().shift_remove("stringData") {
        for (key, text) in texts.as_object().unwrap() {
            use base64::Engine as _;
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap());
            object["data"][key] = json!(encoded);
        }
    }
    let path = crate::support::objects::path(&object, true);
    let request = Request::patch(format!("{path}?fieldManager=konverge&force=true&dryRun=All"))
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
        .unwrap();
    client.request(request).await.unwrap()
}
