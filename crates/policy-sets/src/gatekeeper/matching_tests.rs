use serde_json::json;

use super::*;
use crate::admission::request::{
    Plurals, requests,
    tests::{document, resource},
};
use konverge_base::model::plan::Action;

const SERVICE: &str = "v1:Service:shop:web-a";
const ROLE: &str = "rbac.authorization.k8s.io/v1:ClusterRole:web-a";
const NAMESPACE: &str = "v1:Namespace:shop";

/// What a constraint says of a request, in one word.
fn selected(matches: &Value, id: &str, [before, after]: [Option<Value>; 2]) -> &'static str {
    let matches: ConstraintMatch = serde_json::from_value(matches.clone()).unwrap();
    let action = match (&before, &after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Update,
    };
    let document = document(vec![resource(id, action, [before, after])]);
    let known = Namespaces::from([("shop".to_owned(), labelled("prod"))]);
    let requests = requests(&document, &Plurals::new());
    match matches.selects(&requests[0], &known) {
        Selected::Yes => "yes",
        Selected::No => "no",
        Selected::Unknown(_) => "unknown",
    }
}

fn labelled(env: &str) -> Value {
    json!({"metadata": {"labels": {"env": env}}})
}

fn created(matches: &Value, id: &str) -> &'static str {
    selected(matches, id, [None, Some(labelled("dev"))])
}

#[test]
fn each_key_that_is_set_must_select() {
    for (matches, id, expected) in [
        (json!({}), SERVICE, "yes"),
        (
            json!({"kinds": [{"kinds": ["Service"], "apiGroups": [""]}]}),
            SERVICE,
            "yes",
        ),
        (
            json!({"kinds": [{"kinds": ["*"], "apiGroups": ["*"]}]}),
            SERVICE,
            "yes",
        ),
        (json!({"kinds": [{"kinds": ["Service"]}]}), SERVICE, "yes"),
        (json!({"kinds": [{"apiGroups": [""]}]}), SERVICE, "yes"),
        (
            json!({"kinds": [{"kinds": ["Service"], "apiGroups": ["apps"]}]}),
            SERVICE,
            "no",
        ),
        (
            json!({"kinds": [{"kinds": ["Pod"], "apiGroups": [""]}]}),
            SERVICE,
            "no",
        ),
        (
            json!({"kinds": [{"kinds": ["Pod"]}, {"kinds": ["Service"]}]}),
            SERVICE,
            "yes",
        ),
        (json!({"scope": "Namespaced"}), SERVICE, "yes"),
        (json!({"scope": "Namespaced"}), ROLE, "no"),
        (json!({"scope": "Namespaced"}), NAMESPACE, "no"),
        (json!({"scope": "Cluster"}), SERVICE, "no"),
        (json!({"scope": "Cluster"}), ROLE, "yes"),
        (json!({"scope": "Cluster"}), NAMESPACE, "yes"),
        (json!({"scope": "*"}), SERVICE, "yes"),
        (json!({"scope": "*"}), ROLE, "yes"),
        (json!({"namespaces": ["test", "shop"]}), SERVICE, "yes"),
        (json!({"namespaces": ["sh*"]}), SERVICE, "yes"),
        (json!({"namespaces": ["test"]}), SERVICE, "no"),
        (json!({"namespaces": ["test"]}), ROLE, "yes"),
        (json!({"namespaces": ["test"]}), NAMESPACE, "no"),
        (json!({"namespaces": ["shop"]}), NAMESPACE, "yes"),
        (json!({"excludedNamespaces": ["shop"]}), SERVICE, "no"),
        (json!({"excludedNamespaces": ["*op"]}), NAMESPACE, "no"),
        (json!({"excludedNamespaces": ["test"]}), SERVICE, "yes"),
        (json!({"excludedNamespaces": ["*"]}), ROLE, "yes"),
        (
            json!({"labelSelector": {"matchLabels": {"env": "dev"}}}),
            SERVICE,
            "yes",
        ),
        (
            json!({"labelSelector": {"matchLabels": {"env": "prod"}}}),
            SERVICE,
            "no",
        ),
        (json!({"name": "web-a"}), SERVICE, "yes"),
        (json!({"name": "web-*"}), SERVICE, "yes"),
        (json!({"name": "web"}), SERVICE, "no"),
        (json!({"source": "All"}), SERVICE, "yes"),
        (json!({"source": "Original"}), SERVICE, "yes"),
        (json!({"source": "Generated"}), SERVICE, "no"),
        // One key that does not select is enough.
        (json!({"name": "web", "scope": "Namespaced"}), SERVICE, "no"),
        (json!({"name": "web-a", "scope": "Cluster"}), SERVICE, "no"),
        (
            json!({"namespaces": ["shop"], "excludedNamespaces": ["shop"]}),
            SERVICE,
            "no",
        ),
    ] {
        assert_eq!(created(&matches, id), expected, "{matches} {id}");
    }
}

#[test]
fn a_namespace_is_selected_by_its_labels() {
    let by_env = |env: &str| json!({"namespaceSelector": {"matchLabels": {"env": env}}});
    for (env, id, expected) in [
        ("prod", SERVICE, "yes"),
        ("dev", SERVICE, "no"),
        ("prod", "v1:Service:other:a", "unknown"),
        // What is in no Namespace is selected.
        ("prod", ROLE, "yes"),
        ("dev", ROLE, "yes"),
        // A Namespace is selected by the labels that it will have.
        ("prod", NAMESPACE, "no"),
        ("dev", NAMESPACE, "yes"),
    ] {
        assert_eq!(created(&by_env(env), id), expected, "{env} {id}");
    }
    let mut other = by_env("prod");
    other["name"] = json!("b");
    assert_eq!(created(&other, "v1:Service:other:a"), "no");
}

#[test]
fn an_object_is_selected_as_it_was_or_as_it_will_be() {
    let by_env = json!({"labelSelector": {"matchLabels": {"env": "prod"}}});
    let (prod, dev) = (|| Some(labelled("prod")), || Some(labelled("dev")));
    for (before_and_after, expected) in [
        ([dev(), prod()], "yes"),
        ([prod(), dev()], "yes"),
        ([dev(), dev()], "no"),
        ([prod(), None], "yes"),
        ([dev(), None], "no"),
        ([None, None], "no"),
    ] {
        assert_eq!(selected(&by_env, SERVICE, before_and_after), expected);
    }
}

#[test]
fn the_beginning_of_a_generated_name_is_a_name() {
    let generated = json!({"metadata": {"generateName": "job-"}});
    for (glob, expected) in [
        ("job-*", "yes"),
        ("*job-*", "yes"),
        ("job-", "no"),
        ("*job-", "no"),
        ("x*", "no"),
    ] {
        let found = selected(
            &json!({"name": glob}),
            "v1:Service:shop:a",
            [None, Some(generated.clone())],
        );
        assert_eq!(found, expected, "{glob}");
    }
    assert_eq!(created(&json!({"name": "job-*"}), SERVICE), "no");
}

#[test]
fn a_star_stands_for_text_at_the_ends_of_a_name() {
    for (glob, name, matches) in [
        ("shop", "shop", true),
        ("shop", "shops", false),
        ("shop*", "shops", true),
        ("shop*", "a-shop", false),
        ("*shop", "a-shop", true),
        ("*shop", "shops", false),
        ("*shop*", "a-shops", true),
        ("*shop*", "sho", false),
        ("*", "any", true),
        ("**", "any", true),
        ("s*p", "shop", false),
        ("s*p", "s*p", true),
    ] {
        assert_eq!(matches_glob(glob, name), matches, "{glob} {name}");
    }
}
