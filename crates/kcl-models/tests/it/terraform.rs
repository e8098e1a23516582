//! Provider schemas: blocks, nesting modes, what a stack cannot set, references as text.

use konverge_kcl_models::read_terraform;
use serde_json::{Value, json};

use crate::core::Core;

fn schemas() -> Value {
    let text = |more: Value| {
        let mut field = json!({"type": "string"});
        field
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        field
    };
    let rule = json!({"attributes": {"port": {"type": "number", "required": true}, "names": {"type": ["set", "string"], "optional": true}}});
    json!({"format_version": "1.0", "provider_schemas": {"registry.terraform.io/acme/cloud": {"resource_schemas": {
        "cloud_server": {"version": 1, "block": {
            "attributes": {
                "id": text(json!({"computed": true})),
                "name": text(json!({"required": true, "description": "The name."})),
                "zone": text(json!({"optional": true, "computed": true})),
                "password": text(json!({"optional": true, "sensitive": true, "write_only": true})),
                "count_of": {"type": "number", "optional": true},
                "public": {"type": "bool", "optional": true, "deprecated": true},
                "tags": {"type": ["map", "string"], "optional": true},
                "extra": {"type": ["object", {"a": "string"}], "optional": true},
                "disks": {"nested_type": {"nesting_mode": "list", "attributes": {"size": {"type": "number", "required": true}, "path": text(json!({"computed": true}))}}, "optional": true},
            },
            "block_types": {
                "rule": {"nesting_mode": "list", "block": rule, "min_items": 1},
                "boot": {"nesting_mode": "list", "block": rule, "max_items": 1},
                "pair": {"nesting_mode": "set", "block": rule, "max_items": 2},
                "timeouts": {"nesting_mode": "single", "block": {"attributes": {"create": text(json!({"optional": true}))}}},
                "by_name": {"nesting_mode": "map", "block": rule},
            },
        }},
        "cloud_only_computed": {"block": {"attributes": {"id": text(json!({"computed": true}))}}},
    }}}})
}

#[test]
fn blocks_have_their_shape_and_computed_attributes_cannot_be_set() {
    let mut core = Core::with(read_terraform(&schemas()).unwrap(), &[]);
    core.check_all();
    assert_eq!(
        core.files.keys().collect::<Vec<_>>(),
        [
            "cloud/cloud_only_computed.k",
            "cloud/cloud_server.k",
            "cloud/common.k"
        ]
        .iter()
        .filter(|path| core.files.contains_key(**path))
        .collect::<Vec<_>>()
    );
    let good = json!({"name": "a", "rule": [{"port": 80, "names": ["x"]}]});
    let with = |key: &str, value: Value| {
        let mut object = good.clone();
        object[key] = value;
        object
    };
    let reference = json!("$kusion_path.acme:cloud:cloud_server:other.id");
    for accepted in [
        good.clone(),
        with("count_of", reference.clone()),
        with("tags", reference.clone()),
        with("public", json!("true")),
        with("name", json!(5)),
        with("boot", json!({"port": 1})),
        with("boot", json!([{"port": 1}])),
        with("pair", json!([{"port": 1}, {"port": 2}])),
        with("timeouts", json!({"create": "5m"})),
        with("by_name", json!({"a": {"port": "80"}})),
        with("disks", json!([{"size": 3}])),
        with("extra", json!({"a": "b"})),
        with("tags", json!({"a": "b"})),
        with("zone", json!("z")),
    ] {
        assert_eq!(core.refusal("cloud", "Server", &accepted), None, "{accepted}");
    }
    for refused in [
        json!({"name": "a"}),
        json!({"rule": [{"port": 1}]}),
        with("id", json!("i")),
        with("rule", json!([{}])),
        with("disks", json!([{"size": 1, "path": "p"}])),
        with("pair", json!([{"port": 1}, {"port": 2}, {"port": 3}])),
        with("tags", json!(5)),
        with("unknown", json!(1)),
        with("timeouts", json!({"delete": "5m"})),
    ] {
        assert!(core.refusal("cloud", "Server", &refused).is_some(), "{refused}");
    }
    let text = core.files["cloud/cloud_server.k"].clone();
    assert!(
        text.contains("Sensitive") && text.contains("Write-only") && text.contains("Deprecated"),
        "{text}"
    );
    assert!(text.contains("server: max_items 1, object 1"), "{text}");
}

#[test]
fn a_document_without_resources_is_refused() {
    for (document, said) in [
        (json!({}), "the document has no provider schema"),
        (
            json!({"provider_schemas": {"a/b": {}}}),
            "the document has no resource of a provider",
        ),
        (
            json!({"provider_schemas": {"a/b": {"resource_schemas": {"b_x": {}}}}}),
            "b_x: a resource must have a `block`",
        ),
        (
            json!({"provider_schemas": {"a/b": {"resource_schemas": {"b_x": {"block": {"attributes": {"a": {"type": "text", "optional": true}}}}}}}}),
            "b_x.a: `type` is not a type of Terraform",
        ),
    ] {
        assert!(
            read_terraform(&document).unwrap_err().to_string().contains(said),
            "{said}"
        );
    }
}
