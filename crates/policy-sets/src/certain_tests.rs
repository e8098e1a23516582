//! What a rule finds about a resource with an unknown value, whatever the value turns out to be.
use serde_json::{Value, json};

use super::{
    PolicySet,
    tests::{config, document, file, policy_on_pods, rego, secrets, wanted},
};
use konverge_base::model::{plan_document::DesiredResource, policy_finding::Enforcement};

/// A pod with an image that is not known, and without limits.
fn open_pod() -> DesiredResource {
    let object: Value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": {"$unknown": true}}]}});
    wanted("v1:Pod:shop:web", object)
}

/// Verdict and message of each finding for the pod.
fn found(set: &PolicySet) -> Vec<(Enforcement, String)> {
    let findings = set.findings(&document(vec![open_pod()]), &secrets());
    findings
        .into_iter()
        .map(|finding| (finding.verdict, finding.message))
        .collect()
}

fn denials(set: &PolicySet) -> Vec<String> {
    let found = found(set).into_iter();
    let denied = found.filter(|(verdict, _)| *verdict == Enforcement::Deny);
    denied.map(|(_, message)| message).collect()
}

fn is_open(set: &PolicySet) -> bool {
    found(set)
        .iter()
        .any(|(verdict, message)| *verdict == Enforcement::Undecided && message.contains("image"))
}

#[test]
fn a_definition_in_rego_that_reads_no_unknown_value_denies_before_the_value_is_known() {
    let host = "deny contains \"host network\" if input.spec.hostNetwork\n";
    let image =
        "deny contains \"latest\" if { some c in input.spec.containers; not endswith(c.image, \":1\") }\n";
    let text = |rules: &str| format!("package main\n{rules}{image}");
    let certain = [
        text(host),
        text("hosted if input.spec.hostNetwork\ndeny contains \"host network\" if hosted\n"),
        text(&format!("exception contains [\"other\"]\n{host}")),
        format!(
            "package main\ndeny[\"host network\"] {{ input.spec.hostNetwork }}\n{}",
            "deny[\"x\"] { input.spec.containers[_].image == \"x\" }\n"
        ),
    ];
    for (at, text) in certain.iter().enumerate() {
        let settings = if at == 3 {
            "rego: v0, input: objects"
        } else {
            "input: objects"
        };
        let set = rego(settings, text);
        assert_eq!(denials(&set), ["host network"], "{text}");
        assert!(is_open(&set), "{text}");
    }
    // What reaches the value by another rule, by data or by any rule is not certain; nor is what an exception may lift.
    for rules in [
        "bad if not endswith(input.spec.containers[0].image, \":1\")\ndeny contains \"m\" if bad\n",
        "bad(c) if not endswith(c.image, \":1\")\ndeny contains \"m\" if bad(input.spec.containers[0])\n",
        "import input.spec.containers as all\ndeny contains \"m\" if not all[0].image\n",
        "deny contains \"m\" if { some name in [\"bad\"]; data.main[name] }\nbad if not input.spec.containers[0].image\n",
        "exception contains [\"\"] if endswith(input.spec.containers[0].image, \":1\")\ndeny contains \"m\" if input.spec.hostNetwork\n",
    ] {
        let text = if rules.starts_with("import") {
            format!("package main\n{rules}")
        } else {
            text(rules)
        };
        let set = rego("input: objects", &text);
        assert!(denials(&set).is_empty(), "{text}: {:#?}", denials(&set));
        assert!(is_open(&set), "{text}");
    }
    let data = file("p/d.yaml", "key: image\n");
    let by_data = file(
        "p/a.rego",
        "package main\ndeny contains \"m\" if not input.spec.containers[0][data.key]\n",
    );
    let set = PolicySet::load(&config("input: objects"), &[by_data], &[data]);
    assert!(denials(&set).is_empty());
}

#[test]
fn a_definition_on_the_whole_plan_denies_too() {
    let text = "package main\ndeny contains r.id if { some r in input.resources; r.after.spec.hostNetwork }\ndeny contains \"image\" if { some r in input.resources; not r.after.spec.containers[0].image }\n";
    let set = rego("", text);
    assert_eq!(denials(&set), ["v1:Pod:shop:web"]);
    assert!(is_open(&set));
}

#[test]
fn a_part_in_cel_that_reads_no_unknown_value_denies_before_the_value_is_known() {
    let image = "object.spec.containers.all(c, c.image != 'bad')";
    let host = "!object.spec.hostNetwork";
    for (matches, expression, message, denied) in [
        (
            "true",
            format!("{image} && {host}"),
            "'by ' + object.metadata.name",
            "by web",
        ),
        (
            "true",
            format!("{host} && {image}"),
            "'by ' + object.spec.containers[0].image",
            "m",
        ),
        (
            "object.kind == 'Pod'",
            host.to_owned(),
            "object.spec.containers[0].image",
            "m",
        ),
    ] {
        let set = policy_on_pods(matches, &expression, message);
        assert_eq!(denials(&set), [denied], "{expression}");
        assert!(is_open(&set), "{expression}");
    }
    for (matches, expression) in [
        ("true", format!("{image} || {host}")),
        ("true", image.to_owned()),
        ("!has(object.spec.containers[0].image)", host.to_owned()),
        ("object.spec.containers[0].image != 'x'", host.to_owned()),
        ("true", format!("object.spec.hostNetwork && {image}")),
    ] {
        let set = policy_on_pods(matches, &expression, "'m'");
        assert!(denials(&set).is_empty(), "{matches}, {expression}");
        assert!(is_open(&set), "{matches}, {expression}");
    }
    let other = policy_on_pods("object.kind == 'Service'", &format!("{image} && {host}"), "'m'");
    assert!(denials(&other).is_empty());
}

#[test]
fn a_validation_that_reads_no_unknown_value_denies_before_the_value_is_known() {
    let set = |conditions: &str, expression: &str| {
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints:\n    resourceRules:\n    - {{apiGroups: [''], apiVersions: ['v1'], operations: ['*'], resources: [pods]}}\n  matchConditions: [{conditions}]\n  variables:\n  - {{name: first, expression: 'object.spec.containers[0]'}}\n  - {{name: shown, expression: 'variables.first.image'}}\n  - {{name: host, expression: 'object.spec.hostNetwork'}}\n  validations:\n  - {{expression: \"variables.shown != 'bad'\", message: image}}\n  - {{expression: \"{expression}\", message: m}}\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: b}}\nspec: {{policyName: p, validationActions: [Deny]}}\n"
        );
        let config = config("language: vap");
        PolicySet::load(&config, &[file("p/a.yaml", &text)], &[])
    };
    for expression in [
        "!variables.host",
        "variables.shown == 'good' && !object.spec.hostNetwork",
    ] {
        let set = set("", expression);
        assert_eq!(denials(&set), ["m"], "{expression}");
        assert!(is_open(&set), "{expression}");
    }
    let by_image = "{name: c, expression: \"object.spec.containers[0].image != 'x'\"}";
    let by_kind = "{name: c, expression: \"object.kind == 'Service'\"}";
    for (conditions, expression) in [
        ("", "variables.shown == 'good'"),
        ("", "variables.host && variables.shown == 'good'"),
        (by_image, "!variables.host"),
        (by_kind, "!variables.host"),
    ] {
        let set = set(conditions, expression);
        assert!(denials(&set).is_empty(), "{conditions}, {expression}");
        assert!(is_open(&set), "{conditions}, {expression}");
    }
}

#[test]
fn sets_are_compared_and_take_lists_of_two() {
    let denied = |expression: &str| denials(&policy_on_pods("true", expression, "'m'"));
    for (holds, expression) in [
        (
            true,
            "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        ),
        (false, "sets.contains([1], [2])"),
        (false, "sets.equivalent([1], [1, 2])"),
        (false, "sets.intersects([1], [2])"),
    ] {
        assert_eq!(denied(expression).is_empty(), holds, "{expression}");
    }
    for expression in ["sets.contains(1, [1])", "sets.equivalent([1])"] {
        assert!(
            denied(expression)[0].contains("resulted in error"),
            "{expression}"
        );
    }
}
