//! What gator cannot be asked: unknown values, deletions, what only the cluster knows, and sets that cannot be read.
use serde_json::{Value, json};

use super::{PolicyFile, PolicySet};
use crate as policy;
use konverge_base::model::{
    RepoPath,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    policy_finding::{Enforcement, PolicyFinding},
    spec::RuntimeKind,
};
use konverge_config::Config;

const TEMPLATE: &str = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: t}\nspec:\n  crd: {spec: {names: {kind: T}, validation: {openAPIV3Schema: {type: object, properties: {word: {type: string, default: d}}}}}}\n  targets:\n  - target: admission.k8s.gatekeeper.sh\n    rego: |\n      package t\n      violation[{\"msg\": msg}] { BODY }\n";
const CONSTRAINT: &str =
    "---\n{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: T, metadata: {name: c}, spec: {SPEC}}\n";

fn set(body: &str, spec: &str) -> String {
    TEMPLATE.replace("BODY", body) + &CONSTRAINT.replace("SPEC", spec)
}

fn findings(text: &str, before: Option<Value>, after: Option<Value>) -> Vec<PolicyFinding> {
    let config = Config::parse("policy: {sets: [{name: s, path: p, language: gatekeeper}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: text.to_owned(),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let stack = "shop/dev".parse().unwrap();
    let action = match (&before, &after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Update,
    };
    let change = FieldChange {
        path: "".into(),
        from: before,
        to: after,
        origin: ChangeOrigin::Change,
    };
    let id = "v1:Service:shop:a".parse().unwrap();
    let plan = ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, action, vec![change]);
    let plan = StackPlan::new(RepoPath::root(), stack, Basis::Live, vec![plan]);
    set.findings(&policy::document(&plan, Vec::new()), &super::tests::secrets())
}

fn service(labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop", "labels": labels}, "spec": {"type": "NodePort"}})
}

fn created(text: &str) -> Vec<PolicyFinding> {
    findings(text, None, Some(service(json!({"tier": "front"}))))
}

#[test]
fn what_is_not_known_denies() {
    let body = "msg := input.review.object.spec.type";
    assert_eq!(created(&set(body, ""))[0].message, "NodePort");
    assert_eq!(created(&set("msg := input.parameters.word", ""))[0].message, "d");
    let two = TEMPLATE.replace("BODY", body);
    for (text, word) in [
        (
            set("msg := data.inventory.cluster[_].a", ""),
            "reads `inventory`, which only the cluster knows",
        ),
        (
            set("msg := input.review.userInfo.username", ""),
            "reads `userInfo`",
        ),
        (
            set("msg := external_data({\"provider\": \"p\"})", ""),
            "could not find function",
        ),
        (
            set("msg := http.send({\"url\": \"http://x\"}).body", ""),
            "http.send",
        ),
        (
            set("msg := input.review.namespaceObject.metadata.labels.a", ""),
            "the Namespace is not part of the stack",
        ),
        (
            set(body, "match: {namespaceSelector: {matchLabels: {a: b}}}"),
            "labels of Namespace shop",
        ),
        (set("msg := 7", ""), "a violation has no text `msg`"),
        (set("msg := 1 +", ""), "the set cannot be read"),
        (set(body, "parameters: {words: a}"), "has no `parameters.words`"),
        (set(body, "enforcementAction: denny"), "denny"),
        (set(body, "match: {kind: a}"), "unknown field `kind`"),
        (
            set(body, "").replace("kind: T,", "kind: U,"),
            "no template for constraints of kind U",
        ),
        (
            format!("{two}---\n{two}"),
            "two templates make constraints of kind T",
        ),
        (two.clone(), "it has no constraint"),
        (
            set(body, "").replace("    rego: |", "    rago: |"),
            "unknown field `rago`",
        ),
        (
            set(body, "").replace("admission.k8s", "other.k8s"),
            "is not the target",
        ),
    ] {
        let found = created(&text);
        assert_eq!(found.len(), 1, "{word}");
        assert_eq!(found[0].verdict, Enforcement::Deny, "{word}");
        assert!(found[0].message.contains(word), "{word}: {}", found[0].message);
    }
}

#[test]
fn a_word_behind_a_line_break_is_a_word() {
    let open = || {
        let mut object = service(json!({}));
        object["spec"]["selector"] = json!({"app": {"$unknown": true}});
        object
    };
    let verdicts = |text: &str| {
        let found = findings(text, None, Some(open())).into_iter();
        found.map(|finding| finding.message).collect::<Vec<_>>()
    };
    let rego = "    rego: |\n      package t\n      violation[{\"msg\": msg}] { BODY }\n";
    let with_cel = |expression: &str| {
        let expression = serde_json::to_string(expression).unwrap();
        let code = format!(
            "    code:\n    - {{engine: K8sNativeValidation, source: {{validations: [{{expression: {expression}, message: m}}]}}}}\n"
        );
        assert!(TEMPLATE.contains(rego));
        TEMPLATE.replace(rego, &code) + &CONSTRAINT.replace("SPEC", "")
    };
    let by_parameter = |word: &str| {
        let body = "word := split(input.parameters.word, \"\\n\")[1]; not input.review.object.spec[word]; msg := \"m\"";
        let spec = serde_json::to_string(word).unwrap();
        set(body, &format!("parameters: {{word: {spec}}}"))
    };
    for text in [
        with_cel("object.spec.\nselector.\napp == 'x'"),
        with_cel("object.spec.\tselector.\tapp == 'x'"),
        by_parameter("a\nselector"),
    ] {
        let found = verdicts(&text);
        assert!(
            found.len() == 1 && found[0].starts_with("undecided: it reads /spec/selector/app"),
            "{text}: {found:#?}"
        );
    }
    assert_eq!(verdicts(&with_cel("object.metadata.\nname == 'x'")), ["m"]);
}

#[test]
fn an_unknown_value_is_undecided() {
    let mut unknown = service(json!({"tier": {"$unknown": true}}));
    let by_label = set(
        "msg := \"m\"",
        "match: {labelSelector: {matchLabels: {tier: front}}}",
    );
    let found = findings(&by_label, None, Some(unknown.clone()));
    assert!(
        found[0]
            .message
            .starts_with("undecided: it reads /metadata/labels/tier")
    );
    unknown["metadata"]["labels"] = json!({});
    unknown["spec"]["type"] = json!({"$unknown": true});
    let found = findings(
        &set("input.review.object.spec.type == \"x\"; msg := \"m\"", ""),
        None,
        Some(unknown.clone()),
    );
    assert!(found[0].message.starts_with("undecided: it reads /spec/type"));
    assert_eq!(
        findings(&set("msg := \"m\"", ""), None, Some(unknown))[0].message,
        "m"
    );
}

#[test]
fn only_its_operations_are_judged() {
    let body = "msg := sprintf(\"%v %v\", [input.review.operation, input.review.object.metadata.name])";
    let gone = |text: &str| findings(text, Some(service(json!({}))), None);
    assert!(gone(&set(body, "")).is_empty());
    let all = set(body, "").replace("    rego: |", "    operations: ['*']\n    rego: |");
    assert_eq!(gone(&all)[0].message, "DELETE a");
    let updates = all.replace("'*'", "UPDATE");
    assert!(created(&updates).is_empty() && gone(&updates).is_empty());
    let changed = findings(
        &updates,
        Some(service(json!({}))),
        Some(service(json!({"a": "b"}))),
    );
    assert_eq!(changed[0].message, "UPDATE a");
}
