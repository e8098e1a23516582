//! Compares a Spec with its golden file by meaning.

use serde_json::{Map, Value, json};

use konverge_base::model::{
    diff,
    spec::{Resource, Spec},
};

/// Returns true if two Specs mean the same.
pub(super) fn is_same(one: &Spec, other: &Spec) -> bool {
    let find = |spec: &'_ Spec, resource: &Resource| {
        spec.resources
            .iter()
            .any(|found| is_same_resource(found, resource))
    };
    one.outputs == other.outputs
        && one.resources.len() == other.resources.len()
        && one.resources.iter().all(|resource| find(other, resource))
}

/// Returns true if two resources mean the same: an empty list, `null` and a missing key count as equal.
pub(super) fn is_same_resource(one: &Resource, other: &Resource) -> bool {
    one.id == other.id && diff::same(&comparable(one), &comparable(other))
}

/// Returns the content of a resource without its empty values.
pub(super) fn comparable(resource: &Resource) -> Value {
    let mut depends_on: Vec<&str> = resource.depends_on.iter().map(|id| id.as_str()).collect();
    depends_on.sort_unstable();
    let mut all = resource.attributes.clone();
    if !depends_on.is_empty() || !resource.extensions.is_empty() {
        all.insert("dependsOn".to_owned(), json!(depends_on));
        all.insert(
            "extensions".to_owned(),
            Value::Object(resource.extensions.clone()),
        );
    }
    all.insert("(runtime)".to_owned(), json!(resource.runtime));
    Value::Object(without_empty(&all))
}

fn without_empty(map: &Map<String, Value>) -> Map<String, Value> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    map.iter()
        .filter(|(_, value)| !is_empty(value))
        .map(|(key, value)| (key.clone(), shorten(value)))
        .collect()
}

fn shorten(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_empty(map)),
        Value::Array(items) => items.iter().map(shorten).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_engine::spec;

    fn spec(data: &str) -> Spec {
        let text = format!(
            "- id: v1:ConfigMap:ns:a\n  type: Kubernetes\n  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: ns}}, {data}}}\n"
        );
        spec::read_text(&text, "f").unwrap()
    }

    #[test]
    fn what_is_empty_is_as_if_it_were_absent() {
        let plain = spec("data: {a: '1'}");
        for same in [
            "data: {a: '1', b: []}",
            "data: {a: '1'}, list: []",
            "data: {a: '1', b: null}",
        ] {
            assert!(is_same(&plain, &spec(same)), "{same}");
        }
        for other in [
            "data: {a: '1', b: {}}",
            "data: {a: 1}",
            "data: {a: '1'}, list: [[]]",
        ] {
            assert!(!is_same(&plain, &spec(other)), "{other}");
        }
        let mut more = plain.clone();
        more.resources[0].depends_on.push("v1:Secret:b".parse().unwrap());
        assert!(!is_same(&plain, &more));
    }
}
