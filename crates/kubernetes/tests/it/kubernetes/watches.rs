//! Watches during a wait: when they are opened, that they expire, stale answers. The test plays the controllers.

use std::time::Duration;

use konverge_base::model::{apply_result::StackResult, plan::Action};
use serde_json::{Value, json};

use crate::support::{
    cluster::{AuditEvent, Cluster, User},
    faulty_api_server::{Faults, Proxy},
    objects::{Objects, path},
    service::eventually,
    stack::{self, TestStack, id},
};

fn deployment(ns: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]}}}})
}

/// The status of a Deployment that is there, of a generation.
fn rolled_out(generation: u64) -> Value {
    let condition =
        |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": ""});
    json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")]})
}

/// Plays the Deployment's controller: once the generation is there, its status.
async fn report(objects: &Objects, web: &Value, generation: u64, status: &Value) {
    eventually("the generation is there", Duration::from_secs(60), || async {
        let live = objects.get(web).await?;
        (live["metadata"]["generation"] == generation).then_some(())
    })
    .await;
    objects.report(&path(web, true), status).await;
}

fn waiting(name: &str, kubeconfig: std::path::PathBuf) -> TestStack {
    let mut stack = TestStack::new(name, kubeconfig);
    stack.options.wait = true;
    stack.options.ready_timeout = Duration::from_secs(90);
    stack
}

fn named(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    object
}

/// What was asked about a kind in a namespace.
fn asked(cluster: &Cluster, ns: &str, kind: &str) -> Vec<AuditEvent> {
    let of_kind = |event: &AuditEvent| event.object_ref.as_ref().is_some_and(|of| of.resource == kind);
    let mut events = cluster.audit();
    events.retain(|event| event.is_in(ns) && of_kind(event));
    events
}

/// When the first one came in of which that is true.
fn first(events: &[AuditEvent], is: impl Fn(&AuditEvent) -> bool) -> Option<String> {
    let events = events.iter().filter(|event| is(event));
    events.map(|event| event.received.clone()).min()
}

fn opens_watch(event: &AuditEvent) -> bool {
    event.verb == "watch" || event.uri.contains("limit=1")
}

#[tokio::test]
async fn the_watch_of_a_kind_stands_before_its_first_write() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("watch-first").await, Objects::of(cluster).await);
    let mut stack = waiting("watch-first", cluster.kubeconfig());
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "tables.watched.example.com"},
        "spec": {"group": "watched.example.com", "scope": "Namespaced", "names": {"kind": "Table", "plural": "tables", "singular": "table"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let table = json!({"apiVersion": "watched.example.com/v1", "kind": "Table", "metadata": {"name": "orders", "namespace": ns}});
    let (web, shop) = (deployment(&ns, "a:1"), named(&deployment(&ns, "a:1"), "shop"));
    let settings =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": ns}});
    let wanted = [&definition, &table, &web, &shop, &settings].map(Value::clone);
    let plan = stack.plan_well(&wanted).await;
    let (status, established) = (rolled_out(1), json!({"observedGeneration": 1}));
    let (outcome, ..) = tokio::join!(
        stack.carry_out(plan),
        report(&objects, &web, 1, &status),
        report(&objects, &shop, 1, &status),
        report(&objects, &table, 1, &established),
    );
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    for kind in ["deployments", "tables"] {
        // A watch is in the log when it has ended.
        let events = eventually("the watch has ended", Duration::from_secs(60), || async {
            let events = asked(cluster, &ns, kind);
            events.iter().any(|event| event.verb == "watch").then_some(events)
        });
        let events = events.await;
        let watched = first(&events, |event| event.verb == "watch");
        let written = first(&events, |event| {
            event.writes() && event.uri.contains("fieldManager=konverge")
        });
        assert!(
            watched.is_some() && watched < written,
            "{kind}: {watched:?}, {written:?}"
        );
        // A kind that was defined a moment ago may not be served yet.
        let was_served = |event: &&AuditEvent| {
            event
                .response_status
                .as_ref()
                .is_some_and(|status| status.code == 200)
        };
        let opening = events
            .iter()
            .filter(|event| opens_watch(event))
            .filter(was_served)
            .count();
        assert_eq!(
            opening, 2,
            "{kind}: one watch, and the version it starts from: {events:?}"
        );
    }
    assert!(
        !asked(cluster, &ns, "configmaps").iter().any(opens_watch),
        "it is ready by being there"
    );

    // Who does not wait has nothing to watch.
    stack.options.wait = false;
    let before = asked(cluster, &ns, "deployments").len();
    stack
        .apply(&[definition, table, deployment(&ns, "a:2"), shop, settings])
        .await;
    let since = asked(cluster, &ns, "deployments").split_off(before);
    assert!(!since.is_empty() && !since.iter().any(opens_watch), "{since:?}");
}

/// An apply that gave up waiting fails as well when it is run again.
#[tokio::test]
async fn what_was_not_ready_is_waited_for_again() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("again").await, Objects::of(cluster).await);
    let mut stack = waiting("again", cluster.kubeconfig());
    stack.options.ready_timeout = Duration::from_secs(1);
    let web = deployment(&ns, "a:1");
    let behind = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "behind", "namespace": ns}, "$dependsOn": [id(&web)]});
    let wanted = [web.clone(), behind.clone()];
    for action in [Action::Create, Action::Unchanged] {
        let plan = stack.plan_well(&wanted).await;
        assert_eq!(stack::action(&plan, &web), action);
        let outcome = stack.carry_out(plan).await;
        assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
        let why = outcome.resources[0].message.clone().unwrap();
        assert!(why.contains("is not ready after 1 s: not observed"), "{why}");
        assert!(objects.get(&behind).await.is_none(), "it waits for the other");
    }
    // Who does not wait has not seen it either.
    stack.options.wait = false;
    stack.apply(&wanted).await;
    stack.options.wait = true;
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Failed);

    stack.options.ready_timeout = Duration::from_secs(90);
    let plan = stack.plan_well(&wanted).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!((outcome.result, outcome.error), (StackResult::Unchanged, None));
    // Seen once, it is not read again, whatever becomes of it.
    let plan = stack.plan_well(&wanted).await;
    let before = cluster.audit().len();
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Unchanged);
    let asked = cluster.audit().split_off(before);
    assert!(!asked.iter().any(|event| event.is_in(&ns)), "{asked:?}");
}

#[tokio::test]
async fn who_may_not_watch_waits_by_looking() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("no-watch").await, Objects::of(cluster).await);
    let rules =
        json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "create", "patch"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "no-watch", "namespace": ns}, "rules": rules});
    let nobody =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Nobody.name()});
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "no-watch"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "no-watch", "namespace": ns},
        "subjects": [nobody], "roleRef": to});
    objects.create(&role).await;
    objects.create(&binding).await;
    let mut stack = waiting("no-watch", cluster.kubeconfig_of(User::Nobody));
    let web = deployment(&ns, "a:1");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    let refused = |event: &AuditEvent| {
        opens_watch(event)
            && event
                .response_status
                .as_ref()
                .is_some_and(|status| status.code == 403)
    };
    let events = asked(cluster, &ns, "deployments");
    assert_eq!(
        events.iter().filter(|event| refused(event)).count(),
        2,
        "{events:?}"
    );
}

#[tokio::test]
async fn watches_that_expire_only_cost_time() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("trap-watch").await, Objects::of(cluster).await);
    let proxy = Proxy::start(cluster, Faults::expired_watches()).await;
    let mut stack = waiting("trap-watch", proxy.kubeconfig());
    let web = deployment(&ns, "a:1");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert!(proxy.faults() > 0, "no watch was opened");
}

#[tokio::test]
async fn a_status_of_the_generation_before_is_not_believed() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("trap-stale").await, Objects::of(cluster).await);
    let mut stack = waiting("trap-stale", cluster.kubeconfig());
    let web = deployment(&ns, "a:1");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");

    // The status still says that all is well, but of the generation before. What comes of the new one is a failure.
    stack.options.ready_timeout = Duration::from_secs(30);
    let web = deployment(&ns, "a:2");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let mut status = rolled_out(2);
    status["conditions"][1] = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"});
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 2, &status));
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
    let why = outcome.resources[0].message.clone().unwrap();
    assert!(why.contains("ProgressDeadlineExceeded"), "{why}");
}
