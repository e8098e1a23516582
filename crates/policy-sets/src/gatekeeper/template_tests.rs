use super::*;
use crate::kubernetes_cel::environment;

const REGO: &str = "package t\nviolation[{\"msg\": \"m\"}] { true }\n";

/// A template with a target.
fn template_of(schema: Value, mut target: Value) -> Value {
    if target["target"].is_null() {
        target["target"] = json!(TARGET);
    }
    json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "spec": {
        "crd": {"spec": {"names": {"kind": "T"}, "validation": {"openAPIV3Schema": schema}}}, "targets": [target]}})
}

fn load(template: &Value) -> Result<Template, String> {
    Template::load(template, &environment())
}

fn with_schema(schema: Value) -> Template {
    load(&template_of(schema, json!({"rego": REGO}))).unwrap()
}

#[test]
fn defaults_are_added_where_a_field_is_missing() {
    let schema = json!({"properties": {
        "word": {"default": "d"},
        "plain": {},
        "inner": {"default": {}, "properties": {"n": {"default": 1}}},
        "list": {"items": {"properties": {"k": {"default": "v"}, "other": {}}}},
        "map": {"properties": {"known": {"properties": {"a": {"default": 0}}}}, "additionalProperties": {"properties": {"b": {"default": 2}}}},
        "open": {"additionalProperties": {"properties": {"c": {"default": 3}}}},
    }});
    let template = with_schema(schema);
    for (given, expected) in [
        (Value::Null, json!({"word": "d", "inner": {"n": 1}})),
        (json!({}), json!({"word": "d", "inner": {"n": 1}})),
        (
            json!({"word": "w", "inner": {"n": 2}, "plain": 3}),
            json!({"word": "w", "inner": {"n": 2}, "plain": 3}),
        ),
        (
            json!({"list": [{}, {"k": "w"}, {"other": 1}, 7]}),
            json!({"word": "d", "inner": {"n": 1}, "list": [{"k": "v"}, {"k": "w"}, {"k": "v", "other": 1}, 7]}),
        ),
        (
            json!({"map": {"known": {}, "x": {}}, "open": {"y": {}}}),
            json!({"word": "d", "inner": {"n": 1}, "map": {"known": {"a": 0}, "x": {"b": 2}}, "open": {"y": {"c": 3}}}),
        ),
    ] {
        assert_eq!(template.parameters(&given), Ok(expected), "{given}");
    }
}

#[test]
fn a_field_that_the_schema_lacks_is_refused() {
    let schema = json!({"properties": {
        "word": {},
        "inner": {"properties": {"n": {}}},
        "list": {"items": {"properties": {"k": {}}}},
        "map": {"additionalProperties": {"properties": {"b": {}}}},
        "any": {"additionalProperties": true},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "bound": {"x-kubernetes-preserve-unknown-fields": false},
    }});
    let template = with_schema(schema.clone());
    for given in [
        json!({"word": 1, "inner": {"n": 1}, "list": [{"k": 1}], "map": {"x": {"b": 1}}}),
        json!({"any": {"x": {"y": 1}}, "free": {"x": {"y": 1}}, "bound": {}}),
    ] {
        assert_eq!(template.parameters(&given), Ok(given.clone()), "{given}");
    }
    for (given, path) in [
        (json!({"words": 1}), "parameters.words"),
        (json!({"inner": {"m": 1}}), "parameters.inner.m"),
        (json!({"list": [{"k": 1}, {"j": 1}]}), "parameters.list.j"),
        (json!({"map": {"x": {"c": 1}}}), "parameters.map.x.c"),
        (json!({"bound": {"x": 1}}), "parameters.bound.x"),
        (json!({"word": {"x": 1}}), "parameters.word.x"),
    ] {
        let message = format!("the schema of the template has no `{path}`");
        assert_eq!(template.parameters(&given), Err(message), "{given}");
    }
    // Who keeps the legacy schema takes any field, as an older version does.
    let given = json!({"words": 1});
    for (version, legacy, closed) in [
        ("v1", Value::Null, true),
        ("v1", json!(true), false),
        ("v1", json!(false), true),
        ("v1beta1", Value::Null, false),
        ("v1beta1", json!(true), false),
        ("v1beta1", json!(false), true),
    ] {
        let mut text = template_of(schema.clone(), json!({"rego": REGO}));
        text["apiVersion"] = json!(format!("templates.gatekeeper.sh/{version}"));
        text["spec"]["crd"]["spec"]["validation"]["legacySchema"] = legacy.clone();
        let read = load(&text).unwrap().parameters(&given);
        assert_eq!(read.is_err(), closed, "{version} {legacy}");
    }
}

#[test]
fn a_template_judges_its_operations() {
    let all = [Operation::Create, Operation::Update, Operation::Delete];
    for (operations, judged) in [
        (json!([]), [true, true, false]),
        (json!(["*"]), [true, true, true]),
        (json!(["DELETE"]), [false, false, true]),
        (json!(["CREATE", "UPDATE"]), [true, true, false]),
        (json!(["CONNECT"]), [false, false, false]),
    ] {
        let target = json!({"rego": REGO, "operations": operations});
        let template = load(&template_of(json!({}), target)).unwrap();
        assert_eq!(
            all.map(|operation| template.judges(operation)),
            judged,
            "{operations}"
        );
    }
}

/// What a template in Rego says of an empty review.
fn violations(template: Template) -> Violations {
    let TemplateCode::Rego { engine, rule } = template.code else {
        panic!("it is not Rego");
    };
    let parameters = RegoValue::from(json!({"word": "w"}));
    let review = RegoValue::from(json!({"kind": "k"}));
    rego_violations(&mut engine.lend(), &rule, &review, &parameters, Severity::Warn)
}

#[test]
fn a_template_has_its_code_in_one_place() {
    let rego =
        |text: &str, version: &str| json!({"engine": "Rego", "source": {"rego": text, "version": version}});
    let cel = json!({"engine": "K8sNativeValidation", "source": {"validations": [{"expression": "true"}]}});
    let v1 = "package t\nviolation contains {\"msg\": \"m\"} if true\n";
    for (target, is_cel) in [
        (json!({"rego": REGO}), false),
        (json!({"code": [rego(REGO, "")]}), false),
        (json!({"code": [rego(REGO, "v0")]}), false),
        (json!({"code": [rego(v1, "v1")]}), false),
        (json!({"code": [rego(REGO, ""), rego("", "")]}), false),
        (json!({"code": [cel]}), true),
        (json!({"code": [rego(REGO, ""), cel]}), true),
        (json!({"code": [cel, rego(REGO, "")]}), true),
        (json!({"rego": REGO, "code": [cel]}), true),
    ] {
        let template = load(&template_of(json!({}), target.clone())).unwrap();
        assert_eq!(template.kind, "T");
        assert_eq!(matches!(template.code, TemplateCode::Cel(_)), is_cel, "{target}");
        if !is_cel {
            assert_eq!(
                violations(template),
                [Ok((Severity::Warn, "m".to_owned()))],
                "{target}"
            );
        }
    }
    for (target, why) in [
        (json!({}), "it has no code"),
        (json!({"code": []}), "it has no code"),
        (
            json!({"rego": REGO, "code": [rego(REGO, "")]}),
            "it has Rego in two places",
        ),
        (
            json!({"code": [rego(REGO, "v2")]}),
            "`v2` is not a version of Rego: `v0` or `v1`",
        ),
        (
            json!({"target": "other", "rego": REGO}),
            "`other` is not the target `admission.k8s.gatekeeper.sh`",
        ),
        (
            json!({"rego": "package t\nviolations[{\"msg\": \"m\"}] { true }\n"}),
            "not a valid rule path",
        ),
        (
            json!({"rego": "package t\nviolation[{\"msg\": m}] { m := magic(1) }\n"}),
            "could not find function",
        ),
    ] {
        let message = load(&template_of(json!({}), target.clone())).err().unwrap();
        assert!(message.contains(why), "{target}: {message}");
    }
    let mut nameless = template_of(json!({}), json!({"rego": REGO}));
    nameless["spec"]["crd"]["spec"]["names"]["kind"] = json!("");
    assert_eq!(
        load(&nameless).err().unwrap(),
        "it has no `spec.crd.spec.names.kind`"
    );
    let mut two = template_of(json!({}), json!({"rego": REGO}));
    let target = two["spec"]["targets"][0].clone();
    two["spec"]["targets"] = json!([target, target]);
    assert_eq!(load(&two).err().unwrap(), "a template has one target");
}

#[test]
fn rego_has_its_libraries_and_reads_review_and_parameters() {
    let text = "package t\nimport data.lib.helpers\nviolation[{\"msg\": msg}] { msg := helpers.said(input.review.kind, input.parameters.word) }\n";
    let lib = "package lib.helpers\nsaid(a, b) = msg { msg := sprintf(\"%v of %v\", [a, b]) }\n";
    let expected = [Ok((Severity::Warn, "k of w".to_owned()))];
    let old = json!({"rego": text, "libs": [lib]});
    let new = json!({"code": [{"engine": "Rego", "source": {"rego": text, "libs": [lib]}}]});
    for target in [old, new] {
        let template = load(&template_of(json!({}), target.clone())).unwrap();
        for word in ["word", "said"] {
            assert!(template.mentions.has_word(word), "{word}");
        }
        assert_eq!(violations(template), expected, "{target}");
    }
    let broken = json!({"rego": text, "libs": [lib, "package lib.x\nsaid("]});
    assert!(
        load(&template_of(json!({}), broken))
            .err()
            .unwrap()
            .contains("libs[1]")
    );
}

#[test]
fn a_violation_is_an_object_with_a_text() {
    let of = |body: &str| {
        let text = format!("package t\n{body}\n");
        violations(load(&template_of(json!({}), json!({"rego": text}))).unwrap())
    };
    let failed = |why: &str| vec![Err(why.to_owned())];
    let nameless = "a violation has no text `msg`";
    for (body, expected) in [
        ("violation[{\"msg\": \"m\"}] { false }", vec![]),
        ("violation[{\"msg\": 7}] { true }", failed(nameless)),
        ("violation[{\"text\": \"m\"}] { true }", failed(nameless)),
        ("violation[\"m\"] { true }", failed(nameless)),
        ("violation = 7 { true }", failed("`violation` is not a set")),
        ("violation = 7 { false }", vec![]),
    ] {
        assert_eq!(of(body), expected, "{body}");
    }
    let many = |count: usize| {
        of(&format!(
            "violation[{{\"msg\": m}}] {{ m := sprintf(\"%v\", [numbers.range(1, {count})[_]]) }}"
        ))
    };
    assert_eq!(many(MOST_FINDINGS).len(), MOST_FINDINGS);
    let found = many(MOST_FINDINGS + 1);
    assert_eq!(found.len(), MOST_FINDINGS + 1);
    let message = "it has more than 200 findings for one input".to_owned();
    assert_eq!(found.last(), Some(&Err(message)));
}
