//! Admission webhooks and policies that make a preview differ from the apply, on a real API server.

use std::{sync::OnceLock, time::Duration};

use konverge_base::model::plan::{Action, ChangeOrigin, Validation};
use konverge_engine::RuntimeRegistry;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    service::eventually,
    stack::{TestStack, action, planned, spec},
};

/// A cluster of its own: a webhook anywhere makes every proof of *unchanged* in it void. One test after the other.
async fn cluster() -> (&'static Cluster, tokio::sync::MutexGuard<'static, ()>) {
    static OURS: OnceLock<Cluster> = OnceLock::new();
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    let start = || {
        let api = "--runtime-config=admissionregistration.k8s.io/v1beta1=true";
        Cluster::start_with(",MutatingAdmissionPolicy=true", &[api])
    };
    (OURS.get_or_init(start), turn)
}

fn config_map(ns: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}, "data": data})
}

/// A webhook for the ConfigMaps of one namespace.
fn webhook(kind: &str, ns: &str, client: &Value, side_effects: &str, policy: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": ns}, "webhooks": [{
        "name": format!("{ns}.example.com"), "clientConfig": client, "sideEffects": side_effects, "failurePolicy": policy,
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5, "matchPolicy": "Equivalent", "objectSelector": {},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"], "scope": "*"}]}]})
}

/// A webhook with side effects makes the server refuse every dry-run. Today's servers let none in, but keep
/// those that are there.
#[tokio::test]
async fn a_webhook_that_knows_no_dry_run_leaves_its_objects_unchecked() {
    let (cluster, _turn) = cluster().await;
    let ns = cluster.namespace("trap-side-effects").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-side-effects", cluster.kubeconfig());
    let mut hook = webhook(
        "ValidatingWebhookConfiguration",
        &ns,
        &json!({"url": "https://127.0.0.1:9/"}),
        "Some",
        "Ignore",
    );
    hook["metadata"]["uid"] = json!("5ef7a1de-0000-4000-8000-000000000001");
    hook["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let key = format!("/registry/validatingwebhookconfigurations/{ns}");
    cluster.put_in_etcd(&key, &hook).await;
    let map = |value: &str| config_map(&ns, json!({"k": value}));
    let unchecked = |plan: &konverge_engine::EnginePlan| {
        let planned = planned(plan, &map(""))?;
        let note = planned
            .notes
            .iter()
            .find(|note| note.contains("does not support dry run"))?;
        assert!(note.starts_with("not checked by the server: "), "{note}");
        Some((planned.action, planned.validated))
    };
    let first = eventually("the webhook is in force", Duration::from_secs(30), || async {
        let plan = stack.plan_well(&[map("1")]).await;
        unchecked(&plan).map(|seen| (seen, plan))
    });
    let (seen, plan) = first.await;
    assert_eq!(seen, (Action::Create, Validation::None));
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");

    assert_eq!(stack.plan_well(&[map("1")]).await.public.summary.unchanged, 1);
    let plan = stack.plan_well(&[map("2")]).await;
    assert_eq!(unchecked(&plan), Some((Action::Update, Validation::None)));
    let change = &planned(&plan, &map("")).unwrap().changes[0];
    assert_eq!((change.path.as_str(), &change.to), ("/data/k", &Some(json!("2"))));
    stack.carry_out(plan).await;
    assert_eq!(objects.get(&map("")).await.unwrap()["data"]["k"], "2");
    assert_eq!(stack.plan_well(&[map("2")]).await.public.summary.unchanged, 1);
}

/// What a webhook makes of an object is labelled as such, costs no dry-run while nothing changes, and a webhook
/// that writes something new each time makes no change of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_webhook_makes_of_an_object_is_no_drift() {
    let (cluster, _turn) = cluster().await;
    let ns = cluster.namespace("trap-mutation").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-mutation", cluster.kubeconfig());
    let map = |image: &str, more: &str| config_map(&ns, json!({"image": image, "more": more}));
    stack.apply(&[map("a:1", "x")]).await;

    // The webhook comes when the object is there: what it would do to it is shown, and whose doing it is.
    let (port, authority) = cluster.https();
    let client = json!({"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority});
    let hook = webhook("MutatingWebhookConfiguration", &ns, &client, "None", "Fail");
    objects
        .create_at(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            &hook,
        )
        .await;
    let rewritten = eventually("the webhook is in force", Duration::from_secs(30), || async {
        let plan = stack.plan_well(&[map("a:1", "x")]).await;
        planned(&plan, &map("", "")).is_some().then_some(plan)
    });
    let plan = rewritten.await;
    let origins: Vec<_> = planned(&plan, &map("", ""))
        .unwrap()
        .changes
        .iter()
        .map(|change| (change.path.to_string(), change.origin.clone()))
        .collect();
    let by_webhook = |path: &str| (path.to_owned(), ChangeOrigin::Admission);
    assert_eq!(
        origins,
        [
            by_webhook("/data/image"),
            by_webhook("/metadata/annotations/recorded")
        ]
    );
    stack.carry_out(plan).await;
    let live = objects.get(&map("", "")).await.unwrap();
    assert_eq!(live["data"]["image"], "mirror/a:1");

    // Nothing changed: nothing is asked, whatever the webhook would write down.
    let kubernetes = stack.kubernetes().await;
    let runtimes = RuntimeRegistry::new().with(kubernetes.clone());
    let before = cluster.audit().len();
    let plan = stack.plan_on(&runtimes, spec(&[map("a:1", "x")])).await.unwrap();
    assert_eq!(
        action(&plan, &map("", "")),
        Action::Unchanged,
        "{:?}",
        plan.public
    );
    let patched = |event: &crate::support::cluster::AuditEvent| event.is_in(&ns) && event.verb == "patch";
    assert!(
        !cluster.audit()[before..].iter().any(patched),
        "a dry-run was sent"
    );

    // A change of ours among what the webhook does.
    let plan = stack.plan_well(&[map("a:1", "y")]).await;
    let changes = &planned(&plan, &map("", "")).unwrap().changes;
    let origin = |path: &str| changes.iter().find(|c| c.path == path).map(|c| c.origin.clone());
    assert_eq!(origin("/data/more"), Some(ChangeOrigin::Change));
    assert_eq!(
        origin("/metadata/annotations/recorded"),
        Some(ChangeOrigin::Admission)
    );
    assert_eq!(origin("/data/image"), None, "{changes:?}");
    stack.carry_out(plan).await;
    assert_eq!(
        objects.get(&map("", "")).await.unwrap()["data"],
        json!({"image": "mirror/a:1", "more": "y"})
    );
}

/// A webhook that selects by labels changes an object when somebody labels its namespace, or the object itself, and
/// nothing else has changed.
#[tokio::test(flavor = "multi_thread")]
async fn labels_that_bring_a_webhook_into_play_are_part_of_the_proof() {
    let (cluster, _turn) = cluster().await;
    let objects = Objects::of(cluster).await;
    let (port, authority) = cluster.https();
    let client = json!({"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority});
    for selector in ["namespaceSelector", "objectSelector"] {
        let ns = cluster.namespace("trap-labels").await;
        let mut stack = TestStack::new(&ns, cluster.kubeconfig());
        let map = config_map(&ns, json!({"image": "a:1"}));
        let mut hook = webhook("MutatingWebhookConfiguration", &ns, &client, "None", "Fail");
        let chosen = json!({"matchLabels": {"mirror": ns}});
        hook["webhooks"][0][selector] = chosen;
        objects
            .create_at(
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                &hook,
            )
            .await;
        stack.apply(std::slice::from_ref(&map)).await;
        assert_eq!(
            stack
                .plan_well(std::slice::from_ref(&map))
                .await
                .public
                .summary
                .unchanged,
            1
        );
        let labelled = match selector {
            "namespaceSelector" => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}),
            _ => map.clone(),
        };
        let label = json!({"metadata": {"labels": {"mirror": ns}}});
        objects.merge(&labelled, "somebody", &label).await;
        let plan = eventually("the webhook is in force", Duration::from_secs(30), || async {
            let plan = stack.plan_well(std::slice::from_ref(&map)).await;
            planned(&plan, &map).is_some().then_some(plan)
        });
        let plan = plan.await;
        let changes = &planned(&plan, &map).unwrap().changes;
        assert!(
            changes
                .iter()
                .all(|change| change.origin == ChangeOrigin::Admission),
            "{selector}: {changes:?}"
        );
    }
}

/// A MutatingAdmissionPolicy does what a webhook does.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_makes_of_an_object_is_seen_as_a_webhook_s_doing_is() {
    let (cluster, _turn) = cluster().await;
    let ns = cluster.namespace("trap-policy").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-policy", cluster.kubeconfig());
    let map = config_map(&ns, json!({"k": "v"}));
    stack.apply(std::slice::from_ref(&map)).await;
    let plan = stack.plan_well(std::slice::from_ref(&map)).await;
    assert_eq!(plan.public.summary.unchanged, 1);

    const API: &str = "/apis/admissionregistration.k8s.io/v1beta1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": ns},
        "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/stamp', value: 'policy'}]"}}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": ns},
        "spec": {"policyName": ns, "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}}}});
    objects
        .create_at(&format!("{API}/mutatingadmissionpolicies"), &policy)
        .await;
    objects
        .create_at(&format!("{API}/mutatingadmissionpolicybindings"), &binding)
        .await;
    let stamped = eventually("the policy is in force", Duration::from_secs(60), || async {
        let plan = stack.plan_well(std::slice::from_ref(&map)).await;
        planned(&plan, &map).is_some().then_some(plan)
    });
    let plan = stamped.await;
    let changes = &planned(&plan, &map).unwrap().changes;
    let seen: Vec<_> = changes
        .iter()
        .map(|c| (c.path.as_str(), c.origin.clone()))
        .collect();
    assert_eq!(seen, [("/data/stamp", ChangeOrigin::Admission)]);
    stack.carry_out(plan).await;
    assert_eq!(objects.get(&map).await.unwrap()["data"]["stamp"], "policy");
    let plan = stack.plan_well(std::slice::from_ref(&map)).await;
    assert_eq!(plan.public.summary.unchanged, 1, "{:?}", plan.public);
}

/// What a policy writes follows from its parameters: as long as these stay as they were, an object is proven unchanged,
/// and an edit of one is seen.
#[tokio::test(flavor = "multi_thread")]
async fn the_parameters_of_a_policy_belong_to_the_proof() {
    let (cluster, _turn) = cluster().await;
    let ns = cluster.namespace("trap-parameters").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-parameters", cluster.kubeconfig());
    let parameters = |stamp: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parameters", "namespace": ns, "labels": {"parameters": ns}},
            "data": {"stamp": stamp}})
    };
    const API: &str = "/apis/admissionregistration.k8s.io/v1beta1";
    const VERSION: &str = "admissionregistration.k8s.io/v1beta1";
    let policy = json!({"apiVersion": VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": ns},
        "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/metadata/annotations/stamp', value: params.data.stamp}]"}}]}});
    let binding = json!({"apiVersion": VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": ns},
        "spec": {"policyName": ns, "paramRef": {"name": "parameters", "namespace": ns, "parameterNotFoundAction": "Deny"},
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}}}});
    objects.create(&parameters("one")).await;
    objects
        .create_at(&format!("{API}/mutatingadmissionpolicies"), &policy)
        .await;
    objects
        .create_at(&format!("{API}/mutatingadmissionpolicybindings"), &binding)
        .await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns, "annotations": {"a": "b"}},
        "data": {"k": "dg=="}});
    let stamp = || async {
        let live = objects.get(&secret).await?;
        Some(live["metadata"]["annotations"]["stamp"].as_str()?.to_owned())
    };
    eventually("the policy is in force", Duration::from_secs(60), || async {
        let mut stack = TestStack::new("trap-parameters-probe", cluster.kubeconfig());
        stack.apply(std::slice::from_ref(&secret)).await;
        let is_stamped = stamp().await.as_deref() == Some("one");
        stack.apply(&[]).await;
        is_stamped.then_some(())
    })
    .await;
    stack.apply(std::slice::from_ref(&secret)).await;
    let dry_runs = || {
        let asked = cluster.audit().into_iter();
        asked
            .filter(|event| event.is_in(&ns) && event.uri.contains("dryRun"))
            .count()
    };
    let before = dry_runs();
    let plan = stack.plan_well(std::slice::from_ref(&secret)).await;
    assert_eq!(
        (plan.public.summary.unchanged, dry_runs()),
        (1, before),
        "it is proven"
    );

    objects
        .merge(
            &parameters("one"),
            "kubectl-edit",
            &json!({"data": {"stamp": "two"}}),
        )
        .await;
    // The server that evaluates the policy hears of its parameter a moment late.
    eventually("the edit is seen", Duration::from_secs(60), || async {
        let plan = stack.plan_well(std::slice::from_ref(&secret)).await;
        let planned = planned(&plan, &secret)?;
        let is_stamp = |path: &str| path == "/metadata/annotations/stamp";
        planned
            .changes
            .iter()
            .any(|change| is_stamp(change.path.as_str()))
            .then_some(())
    })
    .await;
}
