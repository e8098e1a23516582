use std::sync::Arc;

use super::*;
use async_trait::async_trait;
use konverge_base::{model::health::HealthReport, yaml};
use proptest::prelude::*;
use serde_json::json;

/// Runs scripts in this process: those of these tests end.
#[derive(Debug)]
pub(super) struct InProcess;

#[async_trait]
impl Evaluate for InProcess {
    async fn run_kcl(&self, _: &str, _: &str, _: &Value) -> Result<AssertionResult, String> {
        Err("no core".to_owned())
    }

    async fn run_lua(&self, script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
        run_lua(script, object)
    }
}

/// Each row of the table of kinds, ready and not ready.
#[test]
fn built_in_rules_say_what_the_table_says() {
    let cases = yaml::documents(include_str!("../../../../tests/fixtures/health/builtin.yaml")).unwrap();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let list = |name: &str| {
            let found = case.pointer(&format!("/related/{name}"));
            found.and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let reporting = list("reporting");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let related = Related {
            pods: list("pods"),
            replica_sets: list("replica_sets"),
            events: list("events"),
            storage_classes: list("storage_classes"),
            rollout_runs: None,
            reporting: reporting
                .iter()
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect(),
            now: Some("2026-01-01T00:10:00Z".parse().unwrap()),
        };
        let verdict = built_in(&case["object"], &related, &HealthRules::default());
        let says = case["says"].as_str().unwrap_or_default();
        let right = verdict.health.to_string() == case["expect"].as_str().unwrap();
        if !right || !verdict.message.contains(says) {
            wrong.push(format!(
                "{}: {verdict:?}, expected {} {says:?}",
                case["case"], case["expect"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn only_a_field_of_the_spec_suspends_an_object_on_purpose() {
    let object = |kind: &str, field: &str, manager: &str| {
        let (version, kind) = kind.rsplit_once('/').unwrap();
        let owner = json!([{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {format!("f:{field}"): {}}}}]);
        json!({"apiVersion": version, "kind": kind, "metadata": {"generation": 1, "managedFields": owner},
            "spec": {field: true}, "status": {"observedGeneration": 1, "conditions": [{"type": "Suspended", "status": "True"}]}})
    };
    let lua = "return {status = 'Suspended', message = 'by a rule'}";
    let rules = ["example.com/Thing", "apps/Deployment"].map(|kind| {
        let place = std::path::Path::new(kind).join("health.lua");
        (place, "health.lua".to_owned(), lua.to_owned())
    });
    let rules = HealthRules::from_files(rules)
        .unwrap()
        .with_evaluator(Arc::new(InProcess));
    let is_on_purpose = async |object: &Value| {
        let verdict = assess(object, &Related::default(), &rules).await;
        assert_eq!(verdict.health, Health::Suspended, "{object}");
        is_suspended_by_spec(object, &rules)
    };
    for (kind, field) in [
        ("apps/v1/Deployment", "paused"),
        ("batch/v1/Job", "suspend"),
        ("batch/v1/CronJob", "suspend"),
        ("argoproj.io/v1alpha1/Rollout", "paused"),
        ("example.com/v1/Thing", "suspend"),
    ] {
        assert!(
            is_on_purpose(&object(kind, field, crate::FIELD_MANAGER)).await,
            "{kind}"
        );
        // `kubectl rollout pause`, or a controller such as Kueue.
        assert!(!is_on_purpose(&object(kind, field, "somebody")).await, "{kind}");
    }
    // A rule of the user's says so, and the Spec does not.
    for kind in ["example.com/v1/Thing", "apps/v1/Deployment"] {
        assert!(
            !is_on_purpose(&object(kind, "other", crate::FIELD_MANAGER)).await,
            "{kind}"
        );
    }
}

#[test]
fn a_failure_weighs_as_much_as_waiting_can_not_heal_it() {
    let weight = |object: Value| built_in(&object, &Related::default(), &HealthRules::default()).weight;
    let deployment = |reason: &str, message: &str, deadline: u32, owned: Value| {
        weight(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"generation": 1, "managedFields": [{"fieldsV1": {"f:spec": owned}}]},
            "spec": {"progressDeadlineSeconds": deadline},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Progressing", "status": "False", "reason": reason, "message": message}]}}))
    };
    let late = "ProgressDeadlineExceeded";
    assert_eq!(deployment(late, "", 60, json!({})), WaitPolicy::Final);
    let chosen = json!({"f:progressDeadlineSeconds": {}});
    assert_eq!(deployment(late, "", 600, chosen), WaitPolicy::Final);
    assert_eq!(
        deployment(late, "", 600, json!({})),
        WaitPolicy::Transient,
        "nobody chose it"
    );
    let refused = |message: &str| deployment("ReplicaSetCreateError", message, 600, json!({}));
    assert_eq!(refused("etcd is slow"), WaitPolicy::Transient);
    assert_eq!(
        refused("pods is forbidden: violates PodSecurity"),
        WaitPolicy::Blocked
    );
    let account = "pods is forbidden: error looking up service account a/b: serviceaccount \"b\" not found";
    assert_eq!(refused(account), WaitPolicy::Transient);
    let quota = |used: u32| {
        refused(&format!(
            "is forbidden: exceeded quota: q, requested: pods=1, used: pods={used}, limited: pods=2"
        ))
    };
    assert_eq!(quota(2), WaitPolicy::Transient, "pods that end make room");
    assert_eq!(quota(0), WaitPolicy::Blocked);

    let pod = |reason: &str, message: &str| {
        weight(
            json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending", "containerStatuses":
            [{"name": "a", "state": {"waiting": {"reason": reason, "message": message}}}]}}),
        )
    };
    assert_eq!(pod("InvalidImageName", ""), WaitPolicy::Blocked);
    assert_eq!(
        pod("ErrImagePull", "code = NotFound desc = x: not found"),
        WaitPolicy::Blocked
    );
    assert_eq!(
        pod("ErrImagePull", "429 Too Many Requests"),
        WaitPolicy::Transient
    );
    assert_eq!(
        pod("ErrImagePull", "dial tcp: lookup r.io: host not found"),
        WaitPolicy::Transient
    );
    assert_eq!(
        pod("ImagePullBackOff", "Back-off pulling image"),
        WaitPolicy::Transient
    );
    assert_eq!(
        pod("CreateContainerConfigError", "secret \"key\" not found"),
        WaitPolicy::Transient
    );
    assert_eq!(pod("CrashLoopBackOff", ""), WaitPolicy::Transient);
    let unschedulable = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending", "conditions":
        [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    assert_eq!(weight(unschedulable), WaitPolicy::Transient);
    assert_eq!(
        weight(json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"})),
        WaitPolicy::Advisory
    );
}

/// Any JSON, with the words that rules look for inserted.
fn any_value() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "True",
        "False",
        "Unknown",
        "Ready",
        "Failed",
        "Progressing",
        "Available",
        "Complete",
        "Running",
        "Pending",
        "Bound",
        "Unschedulable",
        "PodScheduled",
        "OnDelete",
        "LoadBalancer",
        "2026-01-01T00:00:00Z",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "conditions",
        "type",
        "reason",
        "message",
        "phase",
        "generation",
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "containerStatuses",
        "state",
        "waiting",
        "updateStrategy",
        "rollingUpdate",
        "partition",
        "desiredNumberScheduled",
        "annotations",
        "deletionTimestamp",
        "autoscaling.alpha.kubernetes.io/conditions",
        "loadBalancer",
        "ingress",
        "lastTransitionTime",
        "completions",
    ]);
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..8).prop_map(|fields| fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever an object contains, there is an answer, and always the same one.
    #[test]
    fn judging_never_panics(
        kind in prop::sample::select(vec![
            ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("apps/v1", "ReplicaSet"),
            ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("v1", "Pod"), ("v1", "PersistentVolumeClaim"),
            ("v1", "Service"), ("networking.k8s.io/v1", "Ingress"), ("policy/v1", "PodDisruptionBudget"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("apiregistration.k8s.io/v1", "APIService"),
            ("autoscaling/v1", "HorizontalPodAutoscaler"), ("example.com/v1", "Thing"),
        ]),
        metadata in any_value(), spec in any_value(), status in any_value(), around in prop::collection::vec(any_value(), 0..3),
    ) {
        let object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec, "status": status});
        let related = Related {
            pods: around.clone(), replica_sets: around.clone(), events: around.clone(), storage_classes: around,
            now: Some("2026-01-01T00:10:00Z".parse().unwrap()), ..Related::default()
        };
        let verdict = built_in(&object, &related, &HealthRules::default());
        prop_assert_eq!(&verdict, &built_in(&object, &related, &HealthRules::default()));
        built_in(&status, &related, &HealthRules::default());
    }
}
