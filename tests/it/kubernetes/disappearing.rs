//! What disappears while a stack is applied is put back, or the apply does not say `applied`.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy, seed},
    objects::{Objects, path},
    process::Outcome,
    random::Random,
    spec_runs::SpecRuns,
    stack::id,
};

/// Runs of the command on the shared cluster, with the state in a folder.
struct Runs {
    runs: SpecRuns,
    client: kube::Client,
    objects: Objects,
    _folder: TempDir,
}

impl Runs {
    async fn new(subject: &str, more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("file://{}", folder.path().display());
        let runs = SpecRuns::at(subject, &url, more).await;
        Self {
            client: runs.cluster.client().await,
            objects: Objects::of(runs.cluster).await,
            runs,
            _folder: folder,
        }
    }

    /// `konverge apply` of these objects.
    fn apply(&self, stack: &str, wanted: &[Value], kubeconfig: PathBuf) -> Outcome {
        let resources: Vec<_> = wanted
            .iter()
            .map(|object| json!({"id": id(object), "type": "Kubernetes", "attributes": object}))
            .collect();
        let spec = json!({ "resources": resources }).to_string();
        std::fs::write(self.runs.repository.path().join("spec.json"), spec).unwrap();
        let apply = [
            "apply",
            "--yes",
            "--output=json",
            "--spec",
            "spec.json",
            "--stack",
            stack,
        ];
        self.runs
            .konverge(&apply)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .run()
    }

    /// The same, without anything that goes wrong.
    fn apply_well(&self, stack: &str, wanted: &[Value]) {
        let outcome = self
            .apply(stack, wanted, self.runs.cluster.kubeconfig())
            .expect(0);
        assert_eq!(result(&outcome), "applied");
    }

    async fn has_digest(&self, stack: &str) -> bool {
        let states = self.runs.states("the test").await;
        let loaded = states.load(&stack.parse().unwrap()).await.unwrap();
        loaded.is_some_and(|loaded| loaded.state.input_digest.is_some())
    }

    /// The wanted objects that are not there as wanted.
    async fn lacking(&self, wanted: &[Value]) -> Vec<String> {
        let mut lacking = Vec::new();
        for object in wanted {
            let live = self.objects.get(object).await.unwrap_or_default();
            let is_there =
                live["metadata"]["uid"].is_string() && live["metadata"]["deletionTimestamp"].is_null();
            // Fields of others stay beside ours.
            let data = object["data"].as_object().into_iter().flatten();
            let is_as_wanted = data.into_iter().all(|(key, value)| live["data"][key] == *value);
            if !is_there || !is_as_wanted {
                lacking.push(id(object));
            }
        }
        lacking
    }

    async fn is_whole(&self, stack: &str, wanted: &[Value]) {
        assert_eq!(self.lacking(wanted).await, Vec::<String>::new());
        assert!(self.has_digest(stack).await);
    }

    fn hands(&self) -> Hands {
        Hands(self.client.clone())
    }
}

fn result(outcome: &Outcome) -> String {
    outcome.json()["stacks"][0]["result"].as_str().unwrap().to_owned()
}

/// Somebody who takes things away. Cheap to clone.
#[derive(Clone)]
struct Hands(kube::Client);

impl Hands {
    async fn send(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        self.0.request(request.body(body).unwrap()).await.ok()
    }

    async fn delete(&self, object: &Value) {
        self.send("DELETE", &path(object, true), &Value::Null).await;
    }

    /// Deletes an object, and makes one with its name that has other data.
    async fn swap(&self, object: &Value) {
        self.delete(object).await;
        let mut other = object.clone();
        other["data"] = json!({"made-by": "somebody"});
        self.send("POST", &path(&other, false), &other).await;
    }

    /// Ends a namespace as its controller does: its content goes, then the namespace.
    async fn end_namespace(&self, name: &str) {
        let namespace = format!("/api/v1/namespaces/{name}");
        self.send("DELETE", &namespace, &Value::Null).await;
        self.send("DELETE", &format!("{namespace}/configmaps"), &Value::Null)
            .await;
        if let Some(mut live) = self.send("GET", &namespace, &Value::Null).await
            && !live["metadata"]["deletionTimestamp"].is_null()
        {
            live["spec"]["finalizers"] = json!([]);
            self.send("PUT", &format!("{namespace}/finalize"), &live).await;
        }
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn map(ns: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"value": value}})
}

fn is_write(request: &str) -> bool {
    !request.starts_with("GET ") && !request.starts_with("DRY ")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_ending_namespace_takes_along_is_put_back() {
    let runs = Runs::new("ending", "").await;
    let ns = "disappearing-ending";
    let (x, y) = (map(ns, "x", "1"), map(ns, "y", "1"));
    // It is planned after the namespace, in another batch.
    let mut refers = map(ns, "refers", "1");
    let reference = format!("$kusion_path.{}.metadata.name", id(&namespace(ns)));
    refers["metadata"]["annotations"] = json!({"example.com/inside": reference});
    let mut wanted = vec![namespace(ns), x.clone(), refers.clone()];
    runs.apply_well("ending/prod", &wanted);
    runs.hands().delete(&wanted[0]).await;
    wanted.push(y);
    // The namespace ends while the apply waits for it. Until then its content looks untouched.
    let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
    let (hands, looks) = (runs.hands(), Arc::new(AtomicUsize::new(0)));
    proxy.before_each(move |request| {
        let is_look = request == format!("GET /api/v1/namespaces/{ns}");
        let ends = is_look && looks.fetch_add(1, Ordering::SeqCst) == 3;
        let hands = hands.clone();
        async move {
            if ends {
                hands.end_namespace(ns).await;
            }
        }
        .boxed()
    });
    let outcome = runs.apply("ending/prod", &wanted, proxy.kubeconfig()).expect(0);
    assert_eq!(result(&outcome), "applied");
    // The plan knows it before: one round is enough, in which they are created.
    assert!(!outcome.stderr.contains("disappeared"), "{}", outcome.stderr);
    let resources = outcome.json()["stacks"][0]["resources"].clone();
    for object in [&x, &refers] {
        let created = json!({"id": id(object), "action": "create", "result": "done"});
        assert!(resources.as_array().unwrap().contains(&created), "{resources}");
    }
    runs.is_whole("ending/prod", &wanted).await;
}

/// Lets something happen once, before the first write.
fn before_first_write<F: Future<Output = ()> + Send + 'static>(
    proxy: &Proxy,
    happens: impl Fn() -> F + Send + Sync + 'static,
) {
    let is_done = AtomicUsize::new(0);
    proxy.before_each(move |request| {
        let now = is_write(&request) && is_done.fetch_add(1, Ordering::SeqCst) == 0;
        let happens = now.then(&happens);
        async move {
            if let Some(happens) = happens {
                happens.await;
            }
        }
        .boxed()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_lost_after_the_plan_is_put_back_with_its_content() {
    for (policy, restores) in [("", true), ("policy: {drift: stop}\n", false)] {
        let runs = Runs::new("lost", policy).await;
        let ns = format!("disappearing-lost-{restores}");
        let outside = runs.runs.namespace.clone();
        let mut wanted = vec![namespace(&ns), map(&ns, "x", "1")];
        runs.apply_well("lost/prod", &wanted);
        wanted.push(map(&outside, "y", "1"));
        let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
        let (hands, name) = (runs.hands(), ns.clone());
        before_first_write(&proxy, move || {
            let (hands, name) = (hands.clone(), name.clone());
            async move { hands.end_namespace(&name).await }
        });
        let outcome = runs.apply("lost/prod", &wanted, proxy.kubeconfig());
        if restores {
            let outcome = outcome.expect(0);
            assert_eq!(result(&outcome), "applied");
            assert!(
                outcome.stderr.contains("disappeared during the apply"),
                "{}",
                outcome.stderr
            );
            runs.is_whole("lost/prod", &wanted).await;
            continue;
        }
        let outcome = outcome.expect(1);
        assert_eq!(result(&outcome), "failed");
        let error = outcome.json()["stacks"][0]["error"]["message"].to_string();
        assert!(
            error.contains("disappeared") && error.contains("policy.drift"),
            "{error}"
        );
        assert_eq!(runs.lacking(&wanted).await, [id(&wanted[0]), id(&wanted[1])]);
        assert!(!runs.has_digest("lost/prod").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_deletes_each_time_ends_as_a_failure() {
    let runs = Runs::new("each-time", "").await;
    let ns = runs.runs.namespace.clone();
    let (x, y) = (map(&ns, "x", "1"), map(&ns, "y", "1"));
    runs.apply_well("each/prod", std::slice::from_ref(&x));
    let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
    let (hands, victim, writes) = (runs.hands(), x.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&writes);
    proxy.before_each(move |request| {
        counted.fetch_add(usize::from(is_write(&request)), Ordering::SeqCst);
        let (hands, victim) = (hands.clone(), victim.clone());
        let is_read = request.starts_with("GET ") && request.contains("/configmaps");
        let goes = is_read && counted.load(Ordering::SeqCst) > 0;
        async move {
            if goes {
                hands.delete(&victim).await;
            }
        }
        .boxed()
    });
    let outcome = runs
        .apply("each/prod", &[x.clone(), y.clone()], proxy.kubeconfig())
        .expect(1);
    assert_eq!(result(&outcome), "failed");
    let error = outcome.json()["stacks"][0]["error"]["message"].to_string();
    assert!(error.contains(&format!("`{}` disappeared", id(&x))), "{error}");
    assert!(!runs.has_digest("each/prod").await);
    // `y` once, and `x` in each of the two more rounds.
    assert_eq!(writes.load(Ordering::SeqCst), 3);
    // The next run puts it back.
    runs.apply_well("each/prod", &[x.clone(), y.clone()]);
    runs.is_whole("each/prod", &[x, y]).await;
}

fn definition(group: &str) -> Value {
    let names =
        json!({"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"data": {"type": "object",
        "additionalProperties": {"type": "string"}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}})
}

fn widget(group: &str, ns: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": ns});
    json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": metadata, "data": {"value": "1"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_ending_definition_takes_along_is_put_back() {
    let runs = Runs::new("ending-definition", "").await;
    let (ns, group) = (runs.runs.namespace.clone(), "ending.example.com");
    let definition = definition(group);
    let mut wanted = vec![definition.clone(), widget(group, &ns, "x")];
    runs.apply_well("definition/prod", &wanted);
    // The finalizer of somebody's object holds the definition until the apply waits for it.
    let mut held = widget(group, &ns, "held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    runs.objects.create(&held).await;
    runs.hands().delete(&definition).await;
    wanted.push(map(&ns, "y", "1"));
    let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
    let (client, looks) = (runs.client.clone(), Arc::new(AtomicUsize::new(0)));
    let look = format!("GET {}", path(&definition, true));
    proxy.before_each(move |request| {
        let ends = request == look && looks.fetch_add(1, Ordering::SeqCst) == 3;
        let (client, held) = (client.clone(), path(&held, true));
        async move {
            if ends {
                let patch = Request::patch(held).header("content-type", "application/merge-patch+json");
                let body = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
                client.request::<Value>(patch.body(body).unwrap()).await.unwrap();
            }
        }
        .boxed()
    });
    let outcome = runs
        .apply("definition/prod", &wanted, proxy.kubeconfig())
        .expect(0);
    assert_eq!(result(&outcome), "applied");
    runs.is_whole("definition/prod", &wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_lost_after_the_plan_is_put_back_with_its_objects() {
    let runs = Runs::new("lost-definition", "").await;
    let (ns, group) = (runs.runs.namespace.clone(), "lost.example.com");
    let definition = definition(group);
    let mut wanted = vec![definition.clone(), widget(group, &ns, "x")];
    runs.apply_well("definition/prod", &wanted);
    wanted.push(map(&ns, "y", "1"));
    let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
    let hands = runs.hands();
    before_first_write(&proxy, move || {
        let (hands, definition) = (hands.clone(), definition.clone());
        async move {
            hands.delete(&definition).await;
            let path = path(&definition, true);
            while hands.send("GET", &path, &Value::Null).await.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let outcome = runs
        .apply("definition/prod", &wanted, proxy.kubeconfig())
        .expect(0);
    assert_eq!(result(&outcome), "applied");
    runs.is_whole("definition/prod", &wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replaced_owner_takes_along_is_put_back() {
    let cluster = Cluster::with_controllers();
    let runs = Runs::new("owner", "").await;
    let (ns, objects) = (
        cluster.namespace("disappearing-owner").await,
        Objects::of(cluster).await,
    );
    let owner = |value: &str| {
        let mut owner = map(&ns, "owner", value);
        owner["immutable"] = json!(true);
        owner
    };
    let dependent = map(&ns, "dependent", "1");
    let apply = |wanted: &[Value]| {
        let outcome = runs.apply("owner/prod", wanted, cluster.kubeconfig()).expect(0);
        assert_eq!(result(&outcome), "applied");
    };
    apply(&[owner("1"), dependent.clone()]);
    let uid = objects.get(&owner("1")).await.unwrap()["metadata"]["uid"].clone();
    let first = objects.get(&dependent).await.unwrap()["metadata"]["uid"].clone();
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    let patch = json!({"metadata": {"ownerReferences": reference}});
    objects.merge(&dependent, "somebody", &patch).await;
    apply(&[owner("2"), dependent.clone()]);
    let live = objects.get(&dependent).await.expect("it is there");
    assert_ne!(
        live["metadata"]["uid"], first,
        "the garbage collector deleted the first one"
    );
    assert!(live["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(
        objects.get(&owner("2")).await.unwrap()["data"],
        json!({"value": "2"})
    );
    assert!(runs.has_digest("owner/prod").await);
}

/// The number, from 1, of the last request that wrote anything, or that read this object.
fn last_look(requests: &[String], object: &Value) -> usize {
    let path = path(object, true);
    let is_look = |request: &String| is_write(request) || *request == format!("GET {path}");
    requests.iter().rposition(is_look).map_or(0, |last| last + 1)
}

/// Something disappears before the n-th request of an apply, for each n. What an apply that says `applied` lacks
/// disappeared after the last write and after the last look at it. Nobody else can promise more.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_disappears_at_any_instant_an_applied_stack_is_whole() {
    let runs = Runs::new("any-instant", "").await;
    let seed = seed();
    let outside = runs.runs.namespace.clone();
    let (mut applied, mut failed) = (0, 0);
    for instant in 1.. {
        let mut random = Random::of(seed + 7_919 * instant as u64);
        random.next();
        let thing = random.below(5);
        let (ns, stack) = (
            format!("disappearing-{instant}"),
            format!("instant{instant}/prod"),
        );
        let later = format!("y{instant}");
        let (x, y) = (map(&ns, "x", "1"), map(&outside, &later, "1"));
        let before = [namespace(&ns), x.clone(), map(&ns, "changes", "1")];
        runs.apply_well(&stack, &before);
        let wanted = [before[0].clone(), x.clone(), map(&ns, "changes", "2"), y.clone()];
        let proxy = Proxy::start(runs.runs.cluster, Faults::none()).await;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, hands, name) = (Arc::clone(&requests), runs.hands(), ns.clone());
        proxy.before_each(move |request| {
            let now = {
                let mut log = log.lock().unwrap();
                log.push(request);
                log.len()
            };
            let (hands, name, x, y) = (hands.clone(), name.clone(), x.clone(), y.clone());
            async move {
                match (thing, now == instant) {
                    (0, true) => hands.delete(&x).await,
                    (1, true) => hands.swap(&x).await,
                    (2, true) => hands.delete(&y).await,
                    (3, true) => hands.end_namespace(&name).await,
                    (4, true) => hands.delete(&namespace(&name)).await,
                    // It continues ending for some requests.
                    (4, false) if now == instant + 5 => hands.end_namespace(&name).await,
                    _ => {}
                }
            }
            .boxed()
        });
        let outcome = runs.apply(&stack, &wanted, proxy.kubeconfig());
        let requests = requests.lock().unwrap().clone();
        let title = format!(
            "seed {seed}, thing {thing} before request {instant} of {requests:#?}\n{}",
            outcome.stderr
        );
        if requests.len() < instant {
            break;
        }
        if result(&outcome) == "applied" || result(&outcome) == "unchanged" {
            applied += 1;
            for lacking in runs.lacking(&wanted).await {
                let object = wanted.iter().find(|object| id(object) == lacking).unwrap();
                // The content of a namespace that is only marked goes later.
                let goes = if thing == 4 && *object != wanted[0] {
                    instant + 5
                } else {
                    instant
                };
                assert!(
                    last_look(&requests, object) < goes,
                    "`{lacking}` is not there: {title}"
                );
            }
            assert!(runs.has_digest(&stack).await, "{title}");
        } else {
            failed += 1;
            assert!(!runs.has_digest(&stack).await, "{title}");
        }
        if !runs.lacking(&wanted).await.is_empty() {
            // The next run puts everything back.
            if runs
                .objects
                .get(&before[0])
                .await
                .is_some_and(|ns| !ns["metadata"]["deletionTimestamp"].is_null())
            {
                runs.hands().end_namespace(&ns).await;
            }
            runs.apply_well(&stack, &wanted);
        }
        assert_eq!(runs.lacking(&wanted).await, Vec::<String>::new(), "{title}");
    }
    println!("{applied} said `applied`, {failed} failed");
    assert!(
        applied > 8,
        "the generator has lost its teeth: {applied}, {failed}"
    );
}
