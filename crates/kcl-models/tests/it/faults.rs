//! The faults of `kcl import` and `kcl-openapi` that their users reported, each as a case.

use konverge_kcl_models::{GenerateOptions, ModelRoot, generate, read_crds, read_openapi};
use serde_json::{Value, json};

use crate::core::Core;

/// A CRD `Thing` of `example.com` with these versions, each with the properties of `spec`.
fn crd(versions: &[(&str, Value)]) -> Value {
    let versions: Vec<_> = versions
        .iter()
        .map(|(name, spec)| {
            json!({"name": name, "served": true, "storage": *name == versions[0].0, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}})
        })
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "versions": versions}})
}

fn roots(spec: Value) -> Vec<ModelRoot> {
    read_crds([&crd(&[("v1", spec)])]).unwrap()
}

/// The core accepts the first objects of `spec` and refuses the others.
fn judge(spec: Value, good: &[Value], bad: &[Value]) -> String {
    let mut core = Core::with(roots(spec), &[]);
    core.check_all();
    for object in good {
        assert_eq!(
            core.refusal("example_com.v1", "Thing", &json!({"spec": object})),
            None,
            "{object}"
        );
    }
    for object in bad {
        assert!(
            core.refusal("example_com.v1", "Thing", &json!({"spec": object}))
                .is_some(),
            "{object}"
        );
    }
    core.files["example_com/v1/thing.k"].clone()
}

/// kcl-openapi 87 and 29: a property called like a system module.
#[test]
fn kcl_openapi_87_a_property_is_called_regex() {
    judge(
        json!({"regex": {"type": "string", "pattern": "^a"}, "math": {"type": "integer"}, "other": {"type": "string", "pattern": "^b"}}),
        &[json!({"regex": "ab", "math": 1, "other": "b"}), json!({})],
        &[json!({"regex": "b"}), json!({"other": "a"})],
    );
}

/// kcl-openapi 143, 82 and kcl 1127: defaults of maps.
#[test]
fn kcl_openapi_143_a_map_has_a_default() {
    let text = judge(
        json!({"limits": {"type": "object", "additionalProperties": {"type": "string"}, "default": {"cpu": "1", "\"\"\"${x}": "\\"}}}),
        &[json!({}), json!({"limits": {"cpu": "2"}})],
        &[json!({"limits": {"cpu": 2}})],
    );
    assert!(text.contains("Default: {\"cpu\":\"1\""), "{text}");
    assert!(text.contains("    limits?: {str:str}\n"), "{text}");
}

/// kcl-openapi 148 and 156, modules 169: versions of one kind lose each other.
#[test]
fn kcl_openapi_148_and_modules_169_equal_versions_are_packages_of_their_own() {
    let same = json!({"name": {"type": "string"}});
    let crd = crd(&[("v1", same.clone()), ("v1beta1", same)]);
    let mut core = Core::with(read_crds([&crd]).unwrap(), &[]);
    core.check_all();
    assert_eq!(
        core.files.keys().collect::<Vec<_>>(),
        ["example_com/v1/thing.k", "example_com/v1beta1/thing.k"]
    );
    assert!(core.files["example_com/v1beta1/thing.k"].contains("apiVersion: \"example.com/v1beta1\""));
}

/// kcl-openapi 72: an empty `check`.
#[test]
fn a_check_that_cannot_be_written_leaves_no_empty_block() {
    let text = judge(
        json!({"x-y": {"type": "string", "maxLength": 1}, "a": {"type": "string", "pattern": "(?i)a"}}),
        &[json!({"x-y": "long", "a": "b"})],
        &[json!({"x-y": 1})],
    );
    assert!(!text.contains("check:"), "{text}");
    assert!(
        text.contains("server: check of a quoted name 1, pattern 1"),
        "{text}"
    );
}

/// kcl-openapi 147: documents that are no CRD.
#[test]
fn comments_and_other_documents_are_skipped() {
    let documents = [
        json!({"kind": "Kustomization"}),
        json!(null),
        json!([1]),
        crd(&[("v1", json!({}))]),
    ];
    assert_eq!(read_crds(&documents).unwrap().len(), 1);
    assert!(
        read_crds(&documents[..3])
            .unwrap_err()
            .to_string()
            .contains("the document has no custom resource definition")
    );
}

/// Checks that `kcl-openapi` guards by `if x` never fire for empty values.
#[test]
fn empty_values_are_checked() {
    judge(
        json!({"items": {"type": "array", "items": {"type": "string"}, "minItems": 1}, "name": {"type": "string", "minLength": 1}, "count": {"type": "integer", "minimum": 1}}),
        &[json!({}), json!({"items": ["a"], "name": "a", "count": 1})],
        &[json!({"items": []}), json!({"name": ""}), json!({"count": 0})],
    );
}

/// The core counts bytes, the server characters.
#[test]
fn lengths_are_of_characters() {
    judge(
        json!({"name": {"type": "string", "maxLength": 2, "minLength": 2}}),
        &[json!({"name": "世é"})],
        &[json!({"name": "世"}), json!({"name": "abc"})],
    );
}

/// A default in KCL would be a field that the stack owns.
#[test]
fn a_default_is_documentation_and_makes_a_required_property_optional() {
    let mut document = crd(&[(
        "v1",
        json!({"a": {"type": "string", "default": "x"}, "b": {"type": "string", "nullable": true}}),
    )]);
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] =
        json!(["a", "b"]);
    let mut core = Core::with(read_crds([&document]).unwrap(), &[]);
    core.check_all();
    let mut refusal = |spec: Value| core.refusal("example_com.v1", "Thing", &json!({"spec": spec}));
    assert_eq!(refusal(json!({"b": null})), None);
    assert!(refusal(json!({"a": "y"})).unwrap().contains("b is required"));
}

#[test]
fn unions_and_lists_of_objects_are_typed() {
    judge(
        json!({"ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"], "items":
            {"type": "object", "required": ["port"], "properties": {"port": {"x-kubernetes-int-or-string": true}}}}}),
        &[json!({"ports": [{"port": 1}, {"port": "a"}]})],
        &[
            json!({"ports": [{"port": true}]}),
            json!({"ports": [{}]}),
            json!({"ports": [{"port": 1}, {"port": 1}]}),
        ],
    );
}

#[test]
fn a_property_called_like_a_reference_is_none() {
    let text = judge(
        json!({"$ref": {"type": "string"}, "$defs": {"type": "object", "properties": {"$ref": {"type": "integer"}}}}),
        &[json!({"$ref": "#/nowhere", "$defs": {"$ref": 1}})],
        &[json!({"$ref": 1}), json!({"$defs": {"$ref": "#/nowhere"}})],
    );
    assert!(text.contains("\"$ref\"?: str\n"), "{text}");
}

/// A kind `Tree` whose `spec` is the schema `Node`.
fn trees(node: Value) -> Value {
    json!({"definitions": {
        "com.example.v1.Tree": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Tree"}],
            "properties": {"spec": {"$ref": "#/definitions/com.example.v1.Node"}}},
        "com.example.v1.Node": node}})
}

#[test]
fn a_recursive_schema_is_one_schema_of_kcl_or_is_refused() {
    let reference = json!({"$ref": "#/definitions/com.example.v1.Node"});
    let document = trees(json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "children": {"type": "array", "items": reference}}}));
    let mut core = Core::with(read_openapi([&document]).unwrap(), &[]);
    core.check_all();
    let mut refusal = |size: Value| {
        let spec = json!({"size": 1, "children": [{"children": [{"size": size}]}]});
        core.refusal("example_com.v1", "Tree", &json!({"spec": spec}))
    };
    assert_eq!(refusal(json!(2)), None);
    assert!(refusal(json!("x")).is_some());
    for endless in [reference.clone(), json!({"type": "array", "items": reference})] {
        let error = read_openapi([&trees(endless)]).unwrap_err().to_string();
        assert!(error.contains("more than 100 levels"), "{error}");
    }
}

/// Two kinds of one package would have one file.
#[test]
fn kinds_that_differ_by_case_alone_are_refused() {
    let [one, mut other] = [(); 2].map(|()| crd(&[("v1", json!({}))]));
    other["spec"]["names"]["kind"] = json!("THING");
    let error = generate(read_crds([&one, &other]).unwrap(), &GenerateOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("two different schemas are called"),
        "{error}"
    );
}

#[test]
fn documents_that_cannot_be_translated_say_where() {
    let mut no_schema = crd(&[("v1", json!({}))]);
    no_schema["spec"]["versions"][0]
        .as_object_mut()
        .unwrap()
        .remove("schema");
    let mut old = crd(&[("v1", json!({}))]);
    old["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    let other = crd(&[("v1", json!({"a": {"type": "string"}}))]);
    let mut deep = json!({"type": "string"});
    for _ in 0..150 {
        deep = json!({"type": "array", "items": deep});
    }
    let referring = crd(&[("v1", json!({"a": {"$ref": "#/nowhere"}}))]);
    for (documents, said) in [
        (
            vec![no_schema],
            "a served version has no `schema.openAPIV3Schema`",
        ),
        (vec![old], "apiextensions.k8s.io/v1beta1"),
        (vec![other, crd(&[("v1", json!({}))])], "two different schemas"),
        (vec![crd(&[("v1", json!({"a": deep}))])], "more than 100 levels"),
        (
            vec![crd(&[("v1", json!({"a": 5}))])],
            "things.example.com.spec.a: a schema must be a mapping",
        ),
        (vec![referring], "`#/nowhere`, which is not defined"),
    ] {
        let error = read_crds(&documents).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
