use serde_json::json;

use super::{
    super::request::{
        Plurals, requests,
        tests::{document, resource},
    },
    *,
};
use konverge_base::model::plan::Action;

fn selector(text: Value) -> LabelSelector {
    serde_json::from_value(text).unwrap()
}

fn labelled(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

#[test]
fn labels_are_selected_by_values_and_by_expressions() {
    let object = labelled(&json!({"a": "x", "b": "y"}));
    let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let both = |label: &str, operator: &str| json!({"matchLabels": {"a": label}, "matchExpressions": [{"key": "b", "operator": operator}]});
    for (text, selects, selects_nothing) in [
        (json!({}), true, true),
        (json!({"matchLabels": {"a": "x"}}), true, false),
        (json!({"matchLabels": {"a": "y"}}), false, false),
        (json!({"matchLabels": {"c": "x"}}), false, false),
        (json!({"matchLabels": {"a": "x", "b": "y"}}), true, false),
        (json!({"matchLabels": {"a": "x", "b": "z"}}), false, false),
        (one("a", "In", &["z", "x"]), true, false),
        (one("a", "In", &["z", "y"]), false, false),
        (one("c", "In", &["x"]), false, false),
        (one("a", "NotIn", &["z", "x"]), false, true),
        (one("a", "NotIn", &["z", "y"]), true, true),
        (one("c", "NotIn", &["x"]), true, true),
        (one("a", "Exists", &[]), true, false),
        (one("c", "Exists", &[]), false, false),
        (one("a", "DoesNotExist", &[]), false, true),
        (one("c", "DoesNotExist", &[]), true, true),
        (both("x", "Exists"), true, false),
        (both("x", "DoesNotExist"), false, false),
        (both("y", "Exists"), false, false),
    ] {
        let selector = selector(text.clone());
        assert_eq!(selector.selects(Some(&object)), selects, "{text}");
        assert_eq!(selector.selects(None), selects_nothing, "{text}");
        assert_eq!(selector.selects(Some(&json!({}))), selects_nothing, "{text}");
        assert_eq!(selector.is_empty(), text == json!({}), "{text}");
    }
}

#[test]
fn a_namespace_is_selected_by_known_labels_and_by_its_name() {
    let known = Namespaces::from([("shop".to_owned(), labelled(&json!({"env": "prod"})))]);
    let name = "kubernetes.io/metadata.name";
    let by_expression =
        |key: &str| json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["a"]}]});
    for (text, namespace, expected) in [
        (
            json!({"matchLabels": {"env": "prod"}}),
            "shop",
            Some(Selected::Yes),
        ),
        (json!({"matchLabels": {"env": "dev"}}), "shop", Some(Selected::No)),
        (json!({"matchLabels": {"env": "prod"}}), "other", None),
        (
            json!({"matchLabels": {name: "other"}}),
            "other",
            Some(Selected::Yes),
        ),
        (
            json!({"matchLabels": {name: "shop"}}),
            "other",
            Some(Selected::No),
        ),
        (by_expression(name), "other", Some(Selected::Yes)),
        (by_expression(name), "a", Some(Selected::No)),
        (by_expression("env"), "other", None),
        (
            json!({"matchLabels": {name: "other", "env": "prod"}}),
            "other",
            None,
        ),
    ] {
        let found = selector(text.clone()).selects_namespace(namespace, &known);
        let unknown = "it selects by the labels of Namespace other, which is not part of the stack";
        let expected = expected.unwrap_or_else(|| Selected::Unknown(unknown.to_owned()));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn an_unknown_answer_stays_unknown_unless_the_other_decides() {
    let unknown = || Selected::Unknown("why".to_owned());
    let other = || Selected::Unknown("other".to_owned());
    let (yes, no) = (|| Selected::Yes, || Selected::No);
    for (one, two, and, or) in [
        (yes(), yes(), yes(), yes()),
        (yes(), no(), no(), yes()),
        (no(), yes(), no(), yes()),
        (no(), no(), no(), no()),
        (unknown(), yes(), unknown(), yes()),
        (yes(), unknown(), unknown(), yes()),
        (unknown(), no(), no(), unknown()),
        (no(), unknown(), no(), unknown()),
        (unknown(), other(), unknown(), unknown()),
    ] {
        assert_eq!(one.clone().and(|| two.clone()), and);
        assert_eq!(one.or(|| two), or);
    }
    assert_eq!(
        (Selected::from_bool(true), Selected::from_bool(false)),
        (yes(), no())
    );
}

/// What a selection says of a request, in one word.
fn word(selected: Selected) -> &'static str {
    match selected {
        Selected::Yes => "yes",
        Selected::No => "no",
        Selected::Unknown(_) => "unknown",
    }
}

fn selected(matches: &Value, id: &str, action: Action, before_and_after: [Option<Value>; 2]) -> &'static str {
    let matches: MatchResources = serde_json::from_value(matches.clone()).unwrap();
    let document = document(vec![resource(id, action, before_and_after)]);
    let known = Namespaces::from([
        ("shop".to_owned(), labelled(&json!({"env": "prod"}))),
        ("test".to_owned(), labelled(&json!({"env": "dev"}))),
    ]);
    let requests = requests(&document, &Plurals::new());
    word(matches.selects(&requests[0], &known))
}

const SERVICE: &str = "v1:Service:shop:a";
const ROLE: &str = "rbac.authorization.k8s.io/v1:ClusterRole:a";

fn created(matches: &Value, id: &str) -> &'static str {
    selected(matches, id, Action::Create, [None, Some(json!({}))])
}

#[test]
fn a_rule_names_operation_group_version_resource_name_and_scope() {
    let base = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]});
    let with = |key: &str, value: Value| {
        let mut rule = base.clone();
        rule[key] = value;
        rule
    };
    for (rule, expected) in [
        (base.clone(), "yes"),
        (with("operations", json!(["UPDATE", "CREATE"])), "yes"),
        (with("operations", json!(["*"])), "yes"),
        (with("operations", json!(["UPDATE"])), "no"),
        (with("operations", json!([])), "no"),
        (with("apiGroups", json!(["*"])), "yes"),
        (with("apiGroups", json!(["apps"])), "no"),
        (with("resourceNames", json!(["b", "a"])), "yes"),
        (with("resourceNames", json!(["b"])), "no"),
        (with("scope", json!("*")), "yes"),
        (with("scope", json!("Namespaced")), "yes"),
        (with("scope", json!("Cluster")), "no"),
        (with("apiVersions", json!(["*"])), "yes"),
        (with("apiVersions", json!(["v2"])), "unknown"),
        (with("resources", json!(["pods", "services"])), "yes"),
        (with("resources", json!(["pods"])), "no"),
        (with("resources", json!(["*"])), "yes"),
        (with("resources", json!(["*/*"])), "yes"),
        (with("resources", json!(["services/*"])), "yes"),
        (with("resources", json!(["services/status"])), "no"),
        (with("resources", json!(["*/status"])), "no"),
    ] {
        assert_eq!(
            created(&json!({"resourceRules": [rule]}), SERVICE),
            expected,
            "{rule}"
        );
        let excluded = match expected {
            "yes" => "no",
            "no" => "yes",
            other => other,
        };
        let text = json!({"excludeResourceRules": [rule]});
        assert_eq!(created(&text, SERVICE), excluded, "{rule}");
    }
    // Other versions are other kinds for those who ask for it.
    let other = with("apiVersions", json!(["v2"]));
    for (policy, expected) in [("Exact", "no"), ("Equivalent", "unknown")] {
        let text = json!({"resourceRules": [other], "matchPolicy": policy});
        assert_eq!(created(&text, SERVICE), expected, "{policy}");
    }
    // One rule of several decides, and an excluded request is out.
    assert_eq!(
        created(
            &json!({"resourceRules": [with("apiGroups", json!(["x"])), base]}),
            SERVICE
        ),
        "yes"
    );
    assert_eq!(
        created(
            &json!({"resourceRules": [base], "excludeResourceRules": [base]}),
            SERVICE
        ),
        "no"
    );
    assert_eq!(created(&json!({}), SERVICE), "yes");
}

#[test]
fn a_scope_is_that_of_the_object() {
    let rule = |scope: &str| json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": scope}]});
    for (id, namespaced) in [(SERVICE, true), (ROLE, false), ("v1:Namespace:shop", false)] {
        assert_eq!(created(&rule("Namespaced"), id) == "yes", namespaced, "{id}");
        assert_eq!(created(&rule("Cluster"), id) == "yes", !namespaced, "{id}");
        assert_eq!(created(&rule("*"), id), "yes", "{id}");
    }
}

#[test]
fn a_kind_without_a_definition_is_selected_by_a_star_only() {
    let rule = |resources: Value| json!({"resourceRules": [{"apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": resources}]});
    for (resources, expected) in [
        (json!(["*"]), "yes"),
        (json!(["things"]), "unknown"),
        (json!(["a", "*/*"]), "yes"),
    ] {
        assert_eq!(created(&rule(resources), "x.io/v1:Thing:shop:a"), expected);
    }
}

#[test]
fn namespaces_are_selected_by_what_is_known_of_them() {
    let by_env = json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}});
    let labels = |env: &str| Some(labelled(&json!({"env": env})));
    for (id, action, before_and_after, expected) in [
        (SERVICE, Action::Create, [None, labels("dev")], "yes"),
        ("v1:Service:test:a", Action::Create, [None, labels("prod")], "no"),
        (
            "v1:Service:other:a",
            Action::Create,
            [None, labels("prod")],
            "unknown",
        ),
        (ROLE, Action::Create, [None, labels("dev")], "yes"),
        // A Namespace by the labels that it will have, and a deleted one by those that it has.
        ("v1:Namespace:shop", Action::Create, [None, labels("dev")], "no"),
        ("v1:Namespace:test", Action::Create, [None, labels("prod")], "yes"),
        ("v1:Namespace:shop", Action::Delete, [labels("dev"), None], "yes"),
        ("v1:Namespace:test", Action::Delete, [labels("prod"), None], "no"),
    ] {
        assert_eq!(selected(&by_env, id, action, before_and_after), expected, "{id}");
    }
    let all = json!({"namespaceSelector": {}});
    assert_eq!(created(&all, "v1:Service:other:a"), "yes");
}

#[test]
fn an_object_is_selected_by_its_labels_before_or_after() {
    let by_env = json!({"objectSelector": {"matchLabels": {"env": "prod"}}});
    let labels = |env: &str| Some(labelled(&json!({"env": env})));
    for (before, after, expected) in [
        (labels("prod"), labels("dev"), "yes"),
        (labels("dev"), labels("prod"), "yes"),
        (labels("dev"), labels("dev"), "no"),
        (None, None, "no"),
    ] {
        let found = selected(&by_env, SERVICE, Action::Update, [before, after]);
        assert_eq!(found, expected);
    }
    for (text, reads) in [
        (by_env, true),
        (json!({"objectSelector": {}}), false),
        (
            json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}),
            false,
        ),
    ] {
        let matches: MatchResources = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(matches.reads_labels(), reads, "{text}");
    }
}
