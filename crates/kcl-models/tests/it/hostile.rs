//! Hostile names and texts: whatever a document holds, its models load, are formatted, and hold nothing that runs.

use konverge_kcl_models::{GenerateOptions, generate, read_crds, read_terraform};
use konverge_testkit::random::{Random, setting};
use serde_json::{Map, Value, json};

use crate::core::Core;

const TEXTS: [&str; 16] = [
    "\"\"\"",
    "${1 + 1}",
    "$${x}",
    "\\",
    "\n\nimport file\n",
    "\"\"\"\nimport file\nx = file.read(\"/etc/passwd\")\n\"\"\"",
    "a: b",
    "# comment",
    "\u{0}\u{7}",
    "\u{202e}right",
    "'''",
    "r\"\"\"",
    "schema X:",
    "-----",
    "\r\u{2028}",
    "{str:str}",
];
const NAMES: [&str; 22] = [
    "regex", "len", "if", "check", "schema", "_x", "", "a.b", "$ref", "a b", "\"", "\\", "${x}", "é", "a-b",
    "aB", "a_b", "str", "None", "import", "self", "\n",
];

fn schema(random: &mut Random, depth: usize) -> Value {
    let text = |random: &mut Random| json!(*random.pick(&TEXTS));
    let mut schema = match random.below(if depth > 3 { 4 } else { 7 }) {
        0 => json!({"type": "string", "pattern": text(random), "maxLength": random.below(3)}),
        1 => json!({"type": "string", "enum": [text(random), text(random)]}),
        2 => json!({"type": "integer", "minimum": -1, "maximum": u64::MAX}),
        3 => json!({"x-kubernetes-int-or-string": true, "pattern": "a\"\\\\"}),
        4 => json!({"type": "array", "items": schema(random, depth + 1), "minItems": 1}),
        5 => json!({"type": "object", "additionalProperties": schema(random, depth + 1)}),
        _ => {
            let mut properties = Map::new();
            for _ in 0..random.below(6) {
                properties.insert((*random.pick(&NAMES)).to_owned(), schema(random, depth + 1));
            }
            let required: Vec<_> = properties.keys().filter(|_| random.once_in(4)).cloned().collect();
            json!({"type": "object", "properties": properties, "required": required})
        }
    };
    schema["description"] = text(random);
    schema["default"] = text(random);
    schema
}

#[test]
fn whatever_a_document_holds_its_models_load() {
    let seed = setting("KONVERGE_MODEL_SEED", 44);
    for number in 0..setting("KONVERGE_MODEL_DOCUMENTS", 12) {
        let seed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let random = &mut Random::of(seed.max(1));
        let mut properties = Map::new();
        for name in NAMES {
            properties.insert(name.to_owned(), schema(random, 0));
        }
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
            "spec": {"group": "check.example.com", "names": {"kind": "Hostile"}, "versions": [{"name": "v1", "served": true,
                "schema": {"openAPIV3Schema": {"type": "object", "description": TEXTS[5], "properties": properties}}}]}});
        println!("seed {seed}");
        let mut core = Core::with(read_crds([&crd]).unwrap(), &[]);
        core.check_all();
        let text = core.files.values().cloned().collect::<String>();
        assert!(
            !text.lines().any(|line| line.starts_with("import file")),
            "{text}"
        );
    }
}

#[test]
fn names_of_kinds_groups_and_resources_stay_in_their_folder() {
    for (group, kind) in [
        ("../../etc", "../x"),
        ("", ""),
        ("a/b", "/abs"),
        ("math", "_test"),
        ("if", "x_test"),
    ] {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
            "spec": {"group": group, "names": {"kind": kind}, "versions": [{"name": "v1", "served": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        let schemas = json!({"provider_schemas": {format!("host/{group}"): {"resource_schemas": {kind: {"block": {}}}}}});
        for roots in [read_crds([&crd]).unwrap(), read_terraform(&schemas).unwrap()] {
            let files = generate(roots.clone(), &GenerateOptions::default()).unwrap();
            let path = files.keys().next().unwrap();
            let is_plain = |part: &str| {
                !part.is_empty()
                    && !part.starts_with('.')
                    && part
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
            };
            assert!(
                path.split('/').all(is_plain) && path.ends_with(".k") && !path.ends_with("_test.k"),
                "{path}"
            );
            Core::with(roots, &[]).check_all();
        }
    }
}

#[test]
fn a_document_of_200_000_properties_is_translated_or_refused() {
    let many = |count: usize| {
        let properties: Map<String, Value> = (0..count)
            .map(|number| (format!("p{number}"), json!({"type": "string"})))
            .collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
            "spec": {"group": "x", "names": {"kind": "Big"}, "versions": [{"name": "v1", "served": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]}})
    };
    let files = generate(read_crds([&many(200_000)]).unwrap(), &GenerateOptions::default()).unwrap();
    assert!(files.values().next().unwrap().contains("    p199999?: str\n"));
    assert!(
        read_crds([&many(400_001)])
            .unwrap_err()
            .to_string()
            .contains("more than 400000 properties")
    );
}
