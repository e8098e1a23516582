use std::sync::Arc;

use serde_json::json;

use super::*;
use konverge_base::model::{masked_value, spec::Sharing, state::RuntimeRecord};

fn recorded(id: &str, attributes: Value) -> Recorded {
    Recorded {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: Arc::new(attributes.as_object().unwrap().clone()),
        depends_on: Vec::new(),
        extensions: Map::new(),
        sharing: Sharing::default(),
        object_hash: None,
        private: RuntimeRecord::default(),
    }
}

fn release() -> KusionRelease {
    KusionRelease {
        project: "shop".to_owned(),
        workspace: "dev".to_owned(),
        stack: "dev".to_owned(),
        revision: 4,
        mark: Some("m1".to_owned()),
    }
}

#[test]
fn no_mark_of_a_secret_is_written() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"},
        "data": {"password": masked_value::secret("abcd1234")}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"env": [{"name": "TOKEN", "value": masked_value::secret("abcd1234")}]}});
    let state = [
        recorded("v1:Secret:shop:db", secret),
        recorded("v1:Pod:shop:web", pod),
    ];
    let begun = ReleaseDocument::begun(&release(), "applying", json!({"resources": []}));
    let text = begun.ended("succeeded", &[], &state, &Value::Null).text("m1");
    assert!(!text.contains("abcd1234") && !text.contains("$secret"), "{text}");
    let value: Value = yaml::from_str(&text).unwrap();
    assert_eq!(
        value["state"]["resources"][0]["attributes"]["data"]["password"],
        SECRET_DATA
    );
    assert_eq!(
        value["state"]["resources"][1]["attributes"]["spec"]["env"][0]["value"],
        SECRET
    );
    assert!(is_marked(&text, "m1") && !is_marked(&text, "m"));
}

#[test]
fn an_id_without_a_namespace_stays_as_kusion_wrote_it() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let wanted: Resource = serde_json::from_value(json!({
        "id": "v1:ConfigMap:c", "type": "Kubernetes", "attributes": object,
    }))
    .unwrap();
    let mut live = object;
    live["metadata"]["namespace"] = json!("default");
    let state = [recorded("v1:ConfigMap:default:c", live)];
    let begun = ReleaseDocument::begun(&release(), "applying", Value::Null);
    let text = begun
        .ended("succeeded", &[wanted], &state, &Value::Null)
        .text("m1");
    let value: Value = yaml::from_str(&text).unwrap();
    assert_eq!(value["state"]["resources"][0]["id"], "v1:ConfigMap:c");
    assert_eq!(value["spec"]["context"], json!({}));
}

fn wanted(id: &str, kind: &str, attributes: Value) -> Resource {
    serde_json::from_value(json!({"id": id, "type": kind, "attributes": attributes})).unwrap()
}

fn object(api: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}})
}

/// The text of a release that ended, as a value.
fn ended(wanted: &[Resource], state: &[Recorded], before: &Value) -> Value {
    let begun = ReleaseDocument::begun(&release(), "applying", Value::Null);
    let text = begun.ended("succeeded", wanted, state, before).text("m1");
    yaml::from_str(&text).unwrap()
}

#[test]
fn a_release_has_the_names_the_phase_and_the_times_of_kusion() {
    let resources = json!({"resources": []});
    let begun = ReleaseDocument::begun(&release(), "applying", resources.clone());
    let text = begun.text("m1");
    assert_eq!(text.lines().next(), Some("# konverge m1"));
    let value: Value = yaml::from_str(&text).unwrap();
    let time = value["createTime"].as_str().unwrap();
    assert!(
        time.parse::<Timestamp>().is_ok() && time.len() == "2026-01-01T00:00:00Z".len(),
        "{time}"
    );
    let expected = json!({"project": "shop", "workspace": "dev", "revision": 4, "stack": "dev",
        "state": resources, "phase": "applying", "createTime": time, "modifiedTime": time});
    assert_eq!(value, expected);
    assert_eq!(second_of(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00Z");
    for (text, mark, expected) in [
        ("# konverge m1\nproject: a\n", "m1", true),
        ("# konverge m1\n", "m2", false),
        ("project: a\n# konverge m1\n", "m1", false),
        ("# konverge \n", "", true),
        ("", "", false),
    ] {
        assert_eq!(is_marked(text, mark), expected, "{text}");
    }
}

#[test]
fn the_end_of_a_release_keeps_the_store_and_the_context_of_the_spec_before() {
    let before =
        json!({"secretStore": {"provider": "vault"}, "context": {"KUBECONFIG": "x"}, "resources": [1]});
    let spec = &ended(&[], &[], &before)["spec"];
    let expected =
        json!({"resources": [], "secretStore": {"provider": "vault"}, "context": {"KUBECONFIG": "x"}});
    assert_eq!(*spec, expected);
    for context in [json!(null), json!([1]), json!("x")] {
        let spec = &ended(&[], &[], &json!({"context": context}))["spec"];
        assert_eq!(spec["context"], json!({}));
    }
}

#[test]
fn resources_are_written_with_all_their_parts() {
    let mut resource = wanted(
        "v1:ConfigMap:shop:c",
        "Kubernetes",
        object("v1", "ConfigMap", "c"),
    );
    resource.depends_on = vec!["v1:Namespace:shop".parse().unwrap()];
    resource.extensions.insert("GVK".to_owned(), json!("x"));
    let terraform = wanted(
        "hashicorp:random:random_password:db",
        "Terraform",
        json!({"length": 16}),
    );
    let mut record = recorded("v1:ConfigMap:shop:c", object("v1", "ConfigMap", "c"));
    record.depends_on.clone_from(&resource.depends_on);
    record.extensions.clone_from(&resource.extensions);
    let mut made = recorded("hashicorp:random:random_password:db", json!({"length": 16}));
    made.runtime = RuntimeKind::Terraform;
    let parts = json!([
        {"id": "v1:ConfigMap:shop:c", "type": "Kubernetes", "attributes": object("v1", "ConfigMap", "c"),
         "dependsOn": ["v1:Namespace:shop"], "extensions": {"GVK": "x"}},
        {"id": "hashicorp:random:random_password:db", "type": "Terraform", "attributes": {"length": 16}},
    ]);
    let value = ended(&[resource, terraform], &[record, made], &Value::Null);
    assert_eq!(
        (&value["spec"]["resources"], &value["state"]["resources"]),
        (&parts, &parts)
    );
    assert_eq!(value["phase"], "succeeded");
}

#[test]
fn an_object_has_the_id_of_the_spec_if_version_kind_and_name_are_the_same() {
    let state = |attributes: Value| recorded("v1:ConfigMap:shop:c", attributes);
    for (spec_object, expected) in [
        (object("v1", "ConfigMap", "c"), "v1:ConfigMap:c"),
        (object("v2", "ConfigMap", "c"), "v1:ConfigMap:shop:c"),
        (object("v1", "Secret", "c"), "v1:ConfigMap:shop:c"),
        (object("v1", "ConfigMap", "d"), "v1:ConfigMap:shop:c"),
    ] {
        let live = state(object("v1", "ConfigMap", "c"));
        let wanted = [wanted("v1:ConfigMap:c", "Kubernetes", spec_object.clone())];
        let value = ended(&wanted, &[live], &Value::Null);
        assert_eq!(value["state"]["resources"][0]["id"], expected, "{spec_object}");
    }
    // Each object is found by its own name, and what depends on it names it so as well.
    let names = ["c", "d"];
    let wanted = names.map(|name| {
        let id = format!("v1:ConfigMap:{name}");
        wanted(&id, "Kubernetes", object("v1", "ConfigMap", name))
    });
    let mut live = names.map(|name| {
        let id = format!("v1:ConfigMap:shop:{name}");
        recorded(&id, object("v1", "ConfigMap", name))
    });
    live[1].depends_on = vec![live[0].id.clone()];
    let resources = &ended(&wanted, &live, &Value::Null)["state"]["resources"];
    assert_eq!(
        (&resources[0]["id"], &resources[1]["id"]),
        (&json!("v1:ConfigMap:c"), &json!("v1:ConfigMap:d"))
    );
    assert_eq!(resources[1]["dependsOn"], json!(["v1:ConfigMap:c"]));
}

#[test]
fn an_id_that_the_spec_has_as_well_is_no_other_one() {
    let same = object("v1", "ConfigMap", "c");
    let wanted = ["v1:ConfigMap:shop:c", "v1:ConfigMap:c"].map(|id| wanted(id, "Kubernetes", same.clone()));
    let live = [recorded("v1:ConfigMap:shop:c", same)];
    let value = ended(&wanted, &live, &Value::Null);
    assert_eq!(value["state"]["resources"][0]["id"], "v1:ConfigMap:shop:c");
}

#[test]
fn only_the_data_of_a_secret_is_base64() {
    let mark = || masked_value::secret("abcd1234");
    for (kind, field, expected) in [
        ("Secret", "data", SECRET_DATA),
        ("Secret", "stringData", SECRET),
        ("ConfigMap", "data", SECRET),
        ("ConfigMap", "spec", SECRET),
    ] {
        let attributes = json!({"kind": kind, field: {"deep": [mark(), "plain", 3]}});
        let without = without_secrets(attributes.as_object().unwrap());
        assert_eq!(
            Value::Object(without),
            json!({"kind": kind, field: {"deep": [expected, "plain", 3]}})
        );
    }
}
