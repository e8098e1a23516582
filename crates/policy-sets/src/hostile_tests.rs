//! Rules that reach for what is outside, and values that cost much: each is refused or bounded, and says so.
use serde_json::json;

use super::{
    PolicySet,
    tests::{config, document, file, pod, policy_on_pods, rego, said, secrets, wanted},
};
use konverge_base::model::{plan::Action, policy_finding::Enforcement};

fn error_of(text: &str) -> String {
    let findings = rego("", text).findings(&document(vec![pod("web", json!("a"))]), &secrets());
    let first = findings.first().expect("it must not pass");
    assert_eq!(first.verdict, Enforcement::Deny, "{}", first.message);
    first.message.clone()
}

#[test]
fn what_cannot_be_evaluated_denies_and_says_so() {
    let rule = |body: &str| format!("package main\ndeny contains msg if {{ {body} }}\n");
    for (text, word) in [
        (rule("msg := do_magic(input)"), "could not find function do_magic"),
        (
            rule("r := http.send({\"url\": \"http://x\", \"method\": \"get\"}); msg := r.body"),
            "http.send",
        ),
        (rule("msg := opa.runtime().env.HOME"), "opa.runtime"),
        (
            rule("msg := sprintf(\"%d\", [to_number(\"x\")])"),
            "could not be evaluated",
        ),
        (rule("msg := rand.intn(\"a\", 3)"), "random"),
        (
            rule("x := numbers.range(1, 99999); some a in x; some b in x; a + b == -1; msg := \"m\""),
            "longer than 2 s",
        ),
        ("package main\ndeny := true\n".to_owned(), "not a set of messages"),
        (
            "package main\ndeny contains 7 if true\n".to_owned(),
            "neither a text nor an object",
        ),
        ("package main\nallow if true\n".to_owned(), "no rule `deny`"),
        ("package main\ndeny contains if\n".to_owned(), "cannot be read"),
        (
            format!(
                "package main\nx := {}1{}\n",
                "(".repeat(90_000),
                ")".repeat(90_000)
            ),
            "cannot be read",
        ),
    ] {
        let said = error_of(&text);
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// Nothing reads the environment, the network, a file, the clock or chance: each such function of OPA is refused.
#[test]
fn no_rule_reads_what_is_outside() {
    let calls = [
        "http.send({\"url\": \"http://127.0.0.1/\", \"method\": \"get\"})",
        "opa.runtime()",
        "net.lookup_ip_addr(\"localhost\")",
        "rand.intn(\"a\", 3)",
        "time.now_ns()",
        "uuid.rfc4122(\"a\")",
        "io.jwt.decode(\"a.b.c\")",
        "io.jwt.decode_verify(\"a.b.c\", {\"cert\": \"http://127.0.0.1/\"})",
        "io.jwt.verify_hs256(\"a.b.c\", \"secret\")",
        "crypto.x509.parse_and_verify_certificates(\"a\")",
        "providers.aws.sign_req({}, {}, 1)",
        "graphql.parse(\"a\", \"b\")",
        "rego.parse_module(\"a\", \"b\")",
        "json.match_schema({}, \"http://127.0.0.1/\")",
        "external_data({\"provider\": \"p\", \"keys\": []})",
    ];
    for call in calls {
        let name = call.split('(').next().unwrap();
        for text in [
            format!("package main\ndeny contains msg if {{ x := {call}; msg := sprintf(\"%v\", [x]) }}\n"),
            format!("package main\ndeny contains \"m\" if not {call}\n"),
        ] {
            let said = error_of(&text);
            let is_named = said.contains(name) || said.contains("random");
            assert!(
                is_named && said.contains("the rule could not be evaluated"),
                "{call}: {said}"
            );
        }
    }
}

#[test]
fn what_rules_of_others_call_is_there() {
    let find = |settings: &str, text: &str| {
        let findings = rego(settings, text).findings(&document(vec![pod("web", json!("a"))]), &secrets());
        said(&findings)
            .iter()
            .map(|(_, _, message)| (*message).to_owned())
            .collect::<Vec<_>>()
    };
    let old = "package main\ndeny[msg] { any([false, true]); all({true}); not all([true, false]); not any([]); re_match(`^a`, \"ab\"); set_diff({1, 2}, {2}) == {1}; msg = sprintf(\"%q %d%%\", [\"a\\\"b\", 7]) }\n";
    assert_eq!(find("rego: v0", old), ["\"a\\\"b\" 7%"]);
    let set = PolicySet::load(
        &config(""),
        &[
            file(
                "a.rego",
                "package main\nimport data.lib.text\nimport data.lib.text.shout as loud\ndeny contains text.end(\"a\") if text.is_short(\"a\")\nwarn contains loud(\"b\") if true\n",
            ),
            file(
                "lib.rego",
                "package lib.text\nend(x) := concat(\"\", [x, \"!\"])\nis_short(x) if count(x) < 2\nshout(x) := upper(x)\n",
            ),
        ],
        &[],
    );
    let findings = set.findings(&document(vec![pod("web", json!("a"))]), &secrets());
    let texts: Vec<_> = said(&findings)
        .iter()
        .map(|(_, _, message)| (*message).to_owned())
        .collect();
    assert_eq!(texts, ["a!", "B"]);
}

/// Rules may print and trace while they are written: it goes nowhere, and is true.
#[test]
fn what_a_rule_prints_goes_nowhere() {
    let text = "package main\ndeny contains \"m\" if { print(\"::error::printed\"); trace(\"::error::traced\") == true; trace(sprintf(\"%v\", [input])) }\n";
    let findings = rego("", text).findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", "m")]);
}

/// These functions of OPA are not there: a rule that calls one denies.
#[test]
fn a_rule_that_asks_for_its_annotations_denies() {
    for call in ["rego.metadata.rule().title", "rego.metadata.chain()[0]"] {
        let said = error_of(&format!(
            "package main\n# METADATA\n# title: t\ndeny contains msg if {{ msg := {call} }}\n"
        ));
        assert!(said.contains("rego.metadata"), "{said}");
    }
}

#[test]
fn functions_on_numbers_and_networks_are_there() {
    let text = "package main\ndeny contains msg if { units.parse_bytes(\"1Ki\") == 1024; units.parse(\"500m\") == 0.5; to_number(\"1e3\") == 1000; json.unmarshal(\"{\\\"a\\\": 1}\").a == 1; count(net.cidr_expand(\"10.0.0.0/30\")) == 4; bits.lsh(1, 4) == 16; f := \"%s\"; msg := sprintf(f, [\"m\"]) }\n";
    let findings = rego("", text).findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", "m")]);
}

#[test]
fn a_rule_that_is_too_slow_is_not_tried_again() {
    let text = "package main\ndeny contains msg if { x := numbers.range(1, 99999); some a in x; some b in x; a + b == -1; msg := \"m\" }\n";
    let pods = (0..20).map(|n| pod(&format!("p{n}"), json!("a"))).collect();
    let findings = rego("input: objects", text).findings(&document(pods), &secrets());
    assert_eq!(findings.len(), 1);
}

#[test]
fn hostile_values_are_bounded() {
    let mut deep = json!("x");
    for _ in 0..100 {
        deep = json!({ "a": deep });
    }
    let object = json!({"kind": "X", "deep": deep, "long": "a".repeat(1_000_000)});
    let text = "package main\ndeny contains input.resources[0].after.long if true\ndeny contains \"m\" if regex.match(\"^(a+)+$\", input.resources[0].after.long)\ndeny contains \"w\" if { walk(input, [_, v]); v == \"never\" }\n";
    let findings = rego("", text).findings(&document(vec![wanted("v1:X:shop:x", object)]), &secrets());
    assert!(findings.iter().all(|finding| finding.message.len() < 1_100));
    assert!(!findings.is_empty());
    let many = "package main\ndeny contains msg if { some n in numbers.range(1, 400); msg := sprintf(\"%d\", [n]) }\n";
    let findings = rego("", many).findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(findings.len(), 201);
}

/// The loop stops in the middle, with `input` and a function replaced. The rules after it, and the next objects, see
/// their own.
#[test]
fn what_a_with_replaced_is_gone_after_an_error() {
    let text = "package main

deny_a contains \"a\" if {
    some step in numbers.range(1, input.metadata.name) with input as {\"kind\": \"Safe\", \"metadata\": {\"name\": \"x\"}}
    step == 3
}

deny_b contains \"b\" if {
    numbers.range(1, lower(input.metadata.name))[_] == 1 with lower as \"safe\" with input as {\"metadata\": {\"name\": \"x\"}}
}

deny_c contains \"c\" if input.kind == \"Pod\"

deny_d contains \"d\" if lower(input.metadata.name) != \"safe\"
";
    let pods = vec![pod("web", json!("a")), pod("api", json!("a"))];
    let findings = rego("input: objects", text).findings(&document(pods), &secrets());
    let said: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        said.iter()
            .filter(|said| said.contains("could not be evaluated"))
            .count(),
        4,
        "{said:?}"
    );
    for wanted in ["c", "d"] {
        assert_eq!(said.iter().filter(|said| **said == wanted).count(), 2, "{said:?}");
    }
}

/// A key with which the engine's own conversion takes the whole map for a number.
const NUMBER: &str = "$serde_json::private::Number";

#[test]
fn a_map_is_a_map_whatever_its_first_key_is() {
    let hidden = json!({(NUMBER): "1", "privileged": true});
    let text = hidden.to_string();
    let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": hidden, "data": {"a": text}});
    let pet = json!({"keepers": hidden});
    let document = document(vec![
        wanted("v1:X:shop:x", object),
        wanted("hashicorp:random:random_pet:a", pet),
    ]);
    for (settings, value) in [
        ("input: objects", "input.spec"),
        ("input: plan", "input.resources[_].after.spec"),
        ("input: plan", "input.resources[_].after.keepers"),
        ("input: tfplan", "input.resource_changes[_].change.after.keepers"),
        ("input: objects", "json.unmarshal(input.data.a)"),
        ("input: objects", "yaml.unmarshal(input.data.a)"),
        ("input: objects", "json.patch(input.spec, [])"),
        ("input: objects", "object.union(input.spec, {})"),
        ("input: objects", "data.known"),
    ] {
        let text = format!(
            "package main\n\ndeny contains \"found\" if {{\n\tvalue := {value}\n\tvalue.privileged\n}}\n"
        );
        let known = file("p/known.json", &json!({"known": hidden}).to_string());
        let set = PolicySet::load(&config(settings), &[file("p/a.rego", &text)], &[known]);
        let findings = set.findings(&document, &secrets());
        assert!(
            findings.iter().any(|finding| finding.message == "found"),
            "{value}: {findings:?}"
        );
    }
    // A map with such a key is not what its value says.
    let raw = json!({"$serde_json::private::RawValue": "{\"safe\": true}"}).to_string();
    for function in ["json.unmarshal", "yaml.unmarshal"] {
        let text = format!("package main\ndeny contains \"found\" if not {function}(input.data.a).safe\n");
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "data": {"a": raw}});
        let document = super::tests::document(vec![wanted("v1:X:shop:x", object)]);
        let findings = rego("input: objects", &text).findings(&document, &secrets());
        assert_eq!(findings.len(), 1, "{function}");
        assert_eq!(findings[0].message, "found", "{function}");
    }
    let is_valid =
        format!("package main\ndeny contains \"found\" if json.is_valid(`{{\"{NUMBER}\": \"x\"}}`)\n");
    let findings = rego("", &is_valid).findings(&document, &secrets());
    assert_eq!(findings[0].message, "found");
}

/// A null in what stays as it is makes no second evaluation: only in what is written, and in a Namespace.
#[test]
fn a_null_counts_where_a_policy_sees_it() {
    let of = |kind: &str, action: Action| {
        let object =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "creationTimestamp": null}});
        let mut document = document(vec![wanted(&format!("v1:{kind}:a"), object)]);
        document.resources[0].action = action;
        super::rego::input::without_nulls(&document)
    };
    for action in [Action::Unchanged, Action::Forget] {
        assert!(of("ConfigMap", action).is_none(), "{action:?}");
        let namespace = of("Namespace", action).unwrap();
        let left = namespace.resources[0].after.as_ref().unwrap();
        assert_eq!(left["metadata"], json!({"name": "a"}));
    }
    for action in [
        Action::Create,
        Action::Update,
        Action::Adopt,
        Action::Replace,
        Action::Delete,
    ] {
        assert!(of("ConfigMap", action).is_some(), "{action:?}");
    }
}

/// An API server drops a field that is null, so `has` is false there.
#[test]
fn a_null_is_judged_as_what_it_is_and_as_what_is_left_of_it() {
    let pod = |context: serde_json::Value| {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"securityContext": context, "containers": [{"name": "c", "securityContext": context}]}});
        document(vec![wanted("v1:Pod:shop:a", object)])
    };
    let messages = |set: &PolicySet, context| {
        let findings = set.findings(&pod(context), &secrets());
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect::<Vec<_>>()
    };
    for expression in [
        "has(object.spec.securityContext)",
        "object.spec.containers.all(c, has(c.securityContext))",
        "!has(object.spec.securityContext)",
    ] {
        let set = policy_on_pods("true", expression, "''");
        assert_eq!(messages(&set, json!(null)), ["m"], "{expression}");
        let passes = !expression.starts_with('!');
        assert_eq!(messages(&set, json!({"runAsNonRoot": true})).is_empty(), passes);
    }
}
