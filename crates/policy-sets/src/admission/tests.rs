use serde_json::json;

use super::{
    request::tests::{document, resource},
    *,
};
use konverge_base::model::{plan::Action, plan_document::DocumentResource};

const SERVICE: &str = "v1:Service:shop:a";
const ROLE: &str = "rbac.authorization.k8s.io/v1:ClusterRole:a";

/// An object of a kind, with more keys in its `spec`.
fn of_kind(kind: &str, name: &str, mut spec: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A policy that denies everything.
fn policy(more: &Value) -> Value {
    let spec = json!({"matchConstraints": {}, "validations": [{"expression": "false", "message": "m"}]});
    of_kind("ValidatingAdmissionPolicy", "p", spec, more)
}

fn binding(more: &Value) -> Value {
    let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    of_kind("ValidatingAdmissionPolicyBinding", "b", spec, more)
}

fn load(objects: &[Value]) -> Result<AdmissionPolicies, String> {
    let texts: Vec<_> = objects.iter().map(Value::to_string).collect();
    AdmissionPolicies::load(&[PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: texts.join("\n---\n"),
    }])
}

fn created(id: &str) -> DocumentResource {
    resource(
        id,
        Action::Create,
        [None, Some(json!({"metadata": {"labels": {}}}))],
    )
}

/// What the objects of a set say of a resource: rule, severity and text.
fn said_of(objects: &[Value], resource: DocumentResource) -> Vec<String> {
    let document = document(vec![resource]);
    let outcomes = load(objects).unwrap().outcomes(&document);
    let severity = |severity| match severity {
        Severity::Deny => "denies",
        Severity::Warn => "warns",
    };
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        RuleOutcome::Found(found) => {
            format!("{} {}: {}", found.rule, severity(found.severity), found.message)
        }
        RuleOutcome::Unknown {
            rule, severity: of, ..
        } => format!("{rule} {} or not", severity(of)),
    });
    outcomes.collect()
}

fn said(more: &Value, of_binding: &Value, id: &str) -> Vec<String> {
    said_of(&[policy(more), binding(of_binding)], created(id))
}

#[test]
fn a_binding_says_what_a_policy_does() {
    let none = json!({});
    for (actions, expected) in [
        (json!(["Deny"]), "p:b denies: m"),
        (json!(["Audit", "Deny"]), "p:b denies: m"),
        (json!(["Warn"]), "p:b warns: m"),
        (json!(["Audit"]), "p:b warns: m"),
    ] {
        assert_eq!(
            said(&none, &json!({"validationActions": actions}), SERVICE),
            [expected]
        );
    }
    let mut second = binding(&json!({"validationActions": ["Warn"]}));
    second["metadata"]["name"] = json!("c");
    let both = [second, policy(&none), binding(&none)];
    assert_eq!(
        said_of(&both, created(SERVICE)),
        ["p:c warns: m", "p:b denies: m"]
    );
}

#[test]
fn policy_and_binding_must_select() {
    let rules = |resource: &str| json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}]});
    for (of_policy, of_binding, selects) in [
        ("services", "services", true),
        ("services", "pods", false),
        ("pods", "services", false),
        ("pods", "pods", false),
    ] {
        let found = said(
            &json!({"matchConstraints": rules(of_policy)}),
            &json!({"matchResources": rules(of_binding)}),
            SERVICE,
        );
        assert_eq!(!found.is_empty(), selects, "{of_policy} {of_binding}");
    }
    let by_team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let message = "p:b warns: it is not known whether the policy selects this resource: it selects by the labels of Namespace shop, which is not part of the stack";
    let binding = json!({"matchResources": by_team, "validationActions": ["Warn"]});
    assert_eq!(said(&json!({}), &binding, SERVICE), [message]);
}

#[test]
fn who_selects_by_labels_does_not_know_a_resource_with_unknown_labels() {
    let by_label = json!({"objectSelector": {"matchLabels": {"tier": "front"}}});
    let none = json!({});
    for (of_policy, of_binding, path, expected) in [
        (&by_label, &none, "/metadata/labels/tier", "p:b denies or not"),
        (&none, &by_label, "/metadata/labels/tier", "p:b denies or not"),
        (&none, &none, "/metadata/labels/tier", "p:b denies: m"),
        (&none, &none, "/spec/type", "p:b denies: m"),
    ] {
        let mut open = created(SERVICE);
        open.unknown = vec![path.into()];
        let objects = [
            policy(&json!({"matchConstraints": of_policy})),
            binding(&json!({"matchResources": of_binding})),
        ];
        assert_eq!(said_of(&objects, open), [expected], "{path}");
    }
    let mut open = created(SERVICE);
    open.unknown = vec!["/spec/type".into()];
    let objects = [policy(&json!({"matchConstraints": by_label})), binding(&none)];
    assert!(said_of(&objects, open).is_empty());
}

#[test]
fn what_only_the_api_server_knows_denies() {
    let expression = |text: &str| json!({"validations": [{"expression": text, "message": "m"}]});
    for (text, word) in [
        ("request.userInfo.username == 'a'", "userInfo"),
        ("request.options == null", "options"),
        ("request.dryRun", "dryRun"),
        (
            "authorizer.group('').resource('pods').check('get').allowed()",
            "authorizer",
        ),
    ] {
        let message = format!("p:b denies: the policy reads `{word}`, which only the API server knows");
        assert_eq!(said(&expression(text), &json!({}), SERVICE), [message]);
    }
    let by_namespace = expression("namespaceObject == null");
    let message =
        "p:b denies: the policy reads `namespaceObject`, and the Namespace is not part of the stack";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let mut other = namespace.clone();
    other["apiVersion"] = json!("x.io/v1");
    let mut secret = namespace.clone();
    secret["kind"] = json!("Secret");
    for (object, expected) in [(namespace, "p:b denies: m"), (other, message), (secret, message)] {
        let objects = [policy(&by_namespace), binding(&json!({})), object];
        assert_eq!(said_of(&objects, created(SERVICE)), [expected]);
    }
    // What is in no Namespace has none.
    for id in [ROLE, "v1:Namespace:shop"] {
        assert!(said(&by_namespace, &json!({}), id).is_empty(), "{id}");
    }
}

/// Parameters of a kind, with a text by which they are known.
fn params() -> Vec<Value> {
    let rows = [
        ("v1", "ConfigMap", Some("shop"), "c", "1"),
        ("v1", "ConfigMap", Some("other"), "c", "1"),
        ("v1", "ConfigMap", Some("shop"), "d", "2"),
        ("x.io/v1", "ConfigMap", Some("shop"), "c", "1"),
        ("v1", "Secret", Some("shop"), "c", "1"),
        ("x.io/v1", "Level", None, "c", "1"),
    ];
    let objects = rows.map(|(api_version, kind, namespace, name, label)| {
        let text = format!("{api_version} {kind} {} {name}", namespace.unwrap_or("-"));
        json!({"apiVersion": api_version, "kind": kind, "text": text,
            "metadata": {"name": name, "namespace": namespace, "labels": {"k": label}}})
    });
    objects.to_vec()
}

fn with_params(fails: &str, kind: &Value, reference: &Value, id: &str) -> Vec<String> {
    let validation = json!({"expression": "false", "messageExpression": "params.text"});
    let policy = policy(&json!({"paramKind": kind, "failurePolicy": fails, "validations": [validation]}));
    let mut objects = vec![policy, binding(&json!({"paramRef": reference}))];
    objects.extend(params());
    said_of(&objects, created(id))
}

#[test]
fn a_binding_takes_its_parameters_from_the_set() {
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let levels = json!({"apiVersion": "x.io/v1", "kind": "Level"});
    for (kind, reference, id, expected) in [
        (&maps, json!({"name": "c"}), SERVICE, vec!["v1 ConfigMap shop c"]),
        (
            &maps,
            json!({"name": "c", "namespace": "other"}),
            SERVICE,
            vec!["v1 ConfigMap other c"],
        ),
        (
            &maps,
            json!({"name": "c", "namespace": "other"}),
            ROLE,
            vec!["v1 ConfigMap other c"],
        ),
        (
            &maps,
            json!({"selector": {}}),
            SERVICE,
            vec!["v1 ConfigMap shop c", "v1 ConfigMap shop d"],
        ),
        (
            &maps,
            json!({"selector": {"matchLabels": {"k": "2"}}}),
            SERVICE,
            vec!["v1 ConfigMap shop d"],
        ),
        (&levels, json!({"name": "c"}), SERVICE, vec!["x.io/v1 Level - c"]),
        (
            &levels,
            json!({"name": "c", "namespace": "other"}),
            ROLE,
            vec!["x.io/v1 Level - c"],
        ),
    ] {
        for fails in ["Fail", "Ignore"] {
            let expected: Vec<_> = expected
                .iter()
                .map(|text| format!("p:b denies: {text}"))
                .collect();
            assert_eq!(with_params(fails, kind, &reference, id), expected, "{reference}");
        }
    }
}

#[test]
fn a_binding_without_its_parameters_is_told() {
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let clustered = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    let one_of = "one of name or selector must be provided";
    let none = "no params found for policy binding with `Deny` parameterNotFoundAction";
    for (reference, id, why) in [
        (json!({"name": "c"}), ROLE, clustered),
        (json!({"name": "c"}), "v1:Namespace:shop", clustered),
        (json!({}), SERVICE, one_of),
        (json!({"name": "c", "selector": {}}), SERVICE, one_of),
        (
            json!({"name": "x", "parameterNotFoundAction": "Deny"}),
            SERVICE,
            none,
        ),
        (
            json!({"selector": {"matchLabels": {"k": "3"}}, "parameterNotFoundAction": "Deny"}),
            SERVICE,
            none,
        ),
    ] {
        let message = format!("p:b denies: failed to configure binding: {why}");
        assert_eq!(
            with_params("Fail", &maps, &reference, id),
            [message],
            "{reference}"
        );
        assert!(
            with_params("Ignore", &maps, &reference, id).is_empty(),
            "{reference}"
        );
    }
    // They may be in the cluster, or nowhere.
    let missing = "the parameters of the binding (ConfigMap) are not among the files of the set";
    for (reference, message) in [
        (json!({"name": "x"}), format!("p:b denies: {missing}")),
        (
            json!({"name": "x", "parameterNotFoundAction": "Allow"}),
            format!("p:b warns: passes because of `parameterNotFoundAction: Allow`: {missing}"),
        ),
    ] {
        for fails in ["Fail", "Ignore"] {
            assert_eq!(
                with_params(fails, &maps, &reference, SERVICE),
                std::slice::from_ref(&message),
                "{reference}"
            );
        }
    }
}

#[test]
fn a_policy_without_parameters_reads_null() {
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let validation = json!([{"expression": "params != null", "message": "null"}]);
    for (policy, binding) in [
        (
            json!({"validations": validation}),
            json!({"paramRef": {"name": "c"}}),
        ),
        (json!({"validations": validation, "paramKind": kind}), json!({})),
        (json!({"validations": validation}), json!({})),
    ] {
        assert_eq!(said(&policy, &binding, SERVICE), ["p:b denies: null"]);
    }
}

#[test]
fn a_set_is_read_whole_or_not_at_all() {
    let none = json!({});
    let mut other = policy(&none);
    other["metadata"]["name"] = json!("q");
    let mut foreign = policy(&none);
    foreign["apiVersion"] = json!("x.io/v1");
    // A policy without a binding and an object of another group do nothing.
    let objects = [
        policy(&none),
        binding(&none),
        other.clone(),
        foreign.clone(),
        Value::Null,
    ];
    assert_eq!(said_of(&objects, created(SERVICE)), ["p:b denies: m"]);
    let unbound = "it has no ValidatingAdmissionPolicy with a binding: without one nothing is checked";
    for (objects, why) in [
        (vec![], unbound),
        (vec![policy(&none)], unbound),
        (vec![other, binding(&none)], "binding b: the set has no policy p"),
        (
            vec![foreign, binding(&none)],
            "binding b: the set has no policy p",
        ),
        (
            vec![policy(&none), policy(&none), binding(&none)],
            "p/a.yaml: p: two policies have this name",
        ),
        (
            vec![policy(&json!({"other": 1})), binding(&none)],
            "p/a.yaml: p: unknown field `other`",
        ),
        (
            vec![policy(&none), binding(&json!({"other": 1}))],
            "p/a.yaml: b: unknown field `other`",
        ),
    ] {
        let found = load(&objects).err().unwrap();
        assert!(found.starts_with(why), "{found}");
    }
}
