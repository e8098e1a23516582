//! Values that a controller fills in are left to it.

use std::time::Duration;

use base64::Engine as _;
use konverge_base::model::plan::Action;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    service::eventually,
    stack::{TestStack, action, planned},
};

fn role(name: &str, content: Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
    role.as_object_mut()
        .unwrap()
        .extend(content.as_object().unwrap().clone());
    role
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_an_aggregated_role_are_the_clusters() {
    let cluster = Cluster::with_controllers();
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("aggregated", cluster.kubeconfig());
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let mut part = role("aggregated-part", json!({"rules": rules}));
    part["metadata"]["labels"] = json!({"aggregate": "to-whole"});
    let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"aggregate": "to-whole"}}]});
    let whole = role("aggregated-whole", json!({"aggregationRule": rule, "rules": []}));
    let wanted = [part.clone(), whole.clone()];

    let plan = stack.plan_well(&wanted).await;
    let note = "`/rules` is left to the cluster, which fills it by `aggregationRule`";
    assert_eq!(planned(&plan, &whole).unwrap().notes, [note]);
    stack.carry_out(plan).await;
    eventually(
        "the controller fills the rules",
        Duration::from_secs(60),
        || async { (objects.get(&whole).await?["rules"] == rules).then_some(()) },
    )
    .await;

    let again = stack.plan_well(&wanted).await;
    assert_eq!(again.public.summary.unchanged, 2, "{:?}", again.public);
    let mut labelled = whole.clone();
    labelled["metadata"]["labels"] = json!({"a": "1"});
    stack.apply(&[part.clone(), labelled.clone()]).await;
    let live = objects.get(&labelled).await.unwrap();
    assert_eq!(live["rules"], rules, "no apply empties them");
}

#[tokio::test]
async fn a_bundle_and_pull_secrets_that_a_controller_filled_are_no_drift() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("filled").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("filled", cluster.kubeconfig());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": ns}, "imagePullSecrets": []});
    let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": ns},
        "webhooks": [{"name": "filled.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": {"caBundle": "", "service": {"name": "s", "namespace": ns}},
            "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}]}]});
    let wanted = [account.clone(), webhook.clone()];
    stack.apply(&wanted).await;
    let bundle = std::fs::read(cluster.path("ca.crt")).unwrap();
    let bundle = base64::engine::general_purpose::STANDARD.encode(bundle);
    let registry = json!({"imagePullSecrets": [{"name": "registry"}]});
    objects.merge(&account, "pull-secrets", &registry).await;
    let injected =
        json!({"webhooks": [{"name": "filled.example.com", "clientConfig": {"caBundle": bundle}}]});
    objects.strategic_merge(&webhook, "cainjector", &injected).await;

    let again = stack.plan_well(&wanted).await;
    assert_eq!(again.public.summary.unchanged, 2, "{:?}", again.public);
    let mut changed = webhook.clone();
    changed["webhooks"][0]["timeoutSeconds"] = json!(3);
    let plan = stack.plan_well(&[account.clone(), changed.clone()]).await;
    let shown = planned(&plan, &changed).unwrap();
    let notes = &shown.notes;
    assert!(
        notes.iter().any(|note| note.contains("left to `cainjector`")),
        "{notes:?}"
    );
    let paths: Vec<_> = shown.changes.iter().map(|change| change.path.as_str()).collect();
    assert!(paths.iter().all(|path| !path.contains("caBundle")), "{paths:?}");
    stack.carry_out(plan).await;
    let live = objects.get(&webhook).await.unwrap();
    assert_eq!(live["webhooks"][0]["clientConfig"]["caBundle"], json!(bundle));

    // Somebody with `kubectl` is no controller.
    let mine = json!({"imagePullSecrets": [{"name": "mine"}]});
    objects.merge(&account, "kubectl-edit", &mine).await;
    let plan = stack.plan_well(&[account.clone(), changed.clone()]).await;
    assert_eq!(action(&plan, &account), Action::Update);
    stack.apply(&[changed]).await;
}
