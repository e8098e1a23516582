//! Matches an object against a partial object.
//!
//! - A mapping may have more keys than expected. `key: null` expects that the key is absent or null.
//! - Items of a keyed list are matched by their key, as Kubernetes merges them. Items of other lists match at any
//!   position. A list may have more items than expected.
//! - An empty mapping or list expects exactly that. Numbers are compared by value.

use serde_json::Value;

use konverge_base::model::{
    FieldPath,
    diff::{list_keys, same},
    field_path::label,
};

/// Returns the paths at which an object differs from the expected fields, sorted. They have the form of a plan:
/// items of keyed lists as `name=web`.
pub(crate) fn mismatches(expected: &Value, found: &Value) -> Vec<FieldPath> {
    let mut paths = Vec::new();
    compare(&FieldPath::root(), "", expected, Some(found), &mut paths);
    paths.sort();
    paths.dedup();
    paths
}

fn matches(name: &str, expected: &Value, found: &Value) -> bool {
    let mut paths = Vec::new();
    compare(&FieldPath::root(), name, expected, Some(found), &mut paths);
    paths.is_empty()
}

fn compare(
    path: &FieldPath,
    name: &str,
    expected: &Value,
    found: Option<&Value>,
    paths: &mut Vec<FieldPath>,
) {
    match (expected, found) {
        (Value::Null, None | Some(Value::Null)) => {}
        (Value::Object(fields), Some(Value::Object(object))) if !fields.is_empty() => {
            for (key, value) in fields {
                compare(&path.join(key), key, value, object.get(key), paths);
            }
        }
        (Value::Array(items), Some(Value::Array(all))) if !items.is_empty() => {
            compare_items(path, name, items, all, paths);
        }
        (expected, Some(found)) if same(expected, found) => {}
        _ => paths.push(path.clone()),
    }
}

fn compare_items(path: &FieldPath, name: &str, items: &[Value], all: &[Value], paths: &mut Vec<FieldPath>) {
    let keys = if items.iter().all(Value::is_object) {
        list_keys(name, items, all)
    } else {
        None
    };
    let Some(keys) = keys else {
        let is_found = |item: &Value| all.iter().any(|found| matches("", item, found));
        if !items.iter().all(is_found) {
            paths.push(path.clone());
        }
        return;
    };
    for item in items {
        let wanted = label(item, &keys);
        let place = path.join(&wanted);
        // A list in a Spec may contain two items with the same key, although Kubernetes would reject it.
        let same_key = all.iter().filter(|found| label(found, &keys) == wanted);
        let compared = same_key.map(|found| {
            let mut inside = Vec::new();
            // The keys already match. They are not compared again, because a key with a default (`protocol: TCP`)
            // may be missing.
            let fields = item.as_object().into_iter().flatten();
            for (key, value) in fields.filter(|(key, _)| !keys.contains(&key.as_str())) {
                compare(&place.join(key), key, value, found.get(key), &mut inside);
            }
            inside
        });
        match compared.min_by_key(Vec::len) {
            Some(inside) => paths.extend(inside),
            None => paths.push(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({"spec": {"replicas": 2, "template": {"spec": {
            "containers": [
                {"name": "proxy", "image": "envoy:1", "args": ["-c", "x"], "securityContext": {}},
                {"name": "web", "image": "web:2", "ports": [
                    {"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 53, "name": "tcp"}
                ], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
            ],
            "volumes": []
        }}}})
    }

    fn of_pod(part: Value) -> Vec<FieldPath> {
        mismatches(&json!({"spec": {"template": {"spec": part}}}), &deployment())
    }

    /// chainsaw compares lists by position and by length.
    #[test]
    fn items_are_found_by_their_keys_wherever_they_are() {
        let web = |fields: Value| {
            let mut web = json!({"name": "web"});
            web.as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            of_pod(json!({"containers": [web]}))
        };
        assert_eq!(web(json!({"image": "web:2"})), Vec::<FieldPath>::new());
        assert_eq!(
            web(json!({"env": [{"name": "B", "value": "2"}]})),
            Vec::<FieldPath>::new()
        );
        assert_eq!(
            web(json!({"image": "web:3", "env": [{"name": "B", "value": "1"}, {"name": "C"}]})),
            [
                "/spec/template/spec/containers/name=web/env/name=B/value",
                "/spec/template/spec/containers/name=web/env/name=C",
                "/spec/template/spec/containers/name=web/image",
            ]
        );
        assert_eq!(
            web(json!({"ports": [{"containerPort": 53, "protocol": "TCP", "name": "tcp"}]})),
            Vec::<FieldPath>::new()
        );
        assert_eq!(
            web(json!({"ports": [{"containerPort": 53, "protocol": "UDP", "name": "tcp"}]})),
            ["/spec/template/spec/containers/name=web/ports/containerPort=53,protocol=UDP/name"]
        );
        assert_eq!(
            of_pod(json!({"containers": [{"name": "cache"}]})),
            ["/spec/template/spec/containers/name=cache"]
        );
    }

    #[test]
    fn items_without_keys_are_found_in_any_order() {
        let rules = json!({"tls": [{"hosts": ["a", "b"], "secretName": "s"}, {"hosts": ["c"]}]});
        for (expected, fits) in [
            (json!({"tls": [{"hosts": ["c"]}, {"hosts": ["b"]}]}), true),
            (json!({"tls": [{"hosts": ["b", "a"], "secretName": "s"}]}), true),
            (json!({"tls": [{"hosts": ["a", "c"]}]}), false),
            (json!({"tls": [{"hosts": ["c"], "secretName": "s"}]}), false),
        ] {
            assert_eq!(mismatches(&expected, &rules).is_empty(), fits, "{expected}");
        }
    }

    #[test]
    fn nothing_expects_everything() {
        for (expected, fits) in [
            (json!({"volumes": []}), true),
            (json!({"containers": []}), false),
            (
                json!({"containers": [{"name": "proxy", "securityContext": {}}]}),
                true,
            ),
            (
                json!({"containers": [{"name": "web", "securityContext": {}}]}),
                false,
            ),
            (json!({"containers": {}}), false),
            (json!({"containers": [{}]}), false),
            (json!({"hostNetwork": null}), true),
            (json!({"volumes": null}), false),
        ] {
            assert_eq!(of_pod(expected.clone()).is_empty(), fits, "{expected}");
        }
    }

    #[test]
    fn a_value_is_equal_by_its_type() {
        let replicas =
            |value: Value| mismatches(&json!({"spec": {"replicas": value}}), &deployment()).is_empty();
        assert!(replicas(json!(2)) && replicas(json!(2.0)));
        assert!(!replicas(json!("2")) && !replicas(json!(3)) && !replicas(json!({"a": 1})));
    }

    #[test]
    fn a_duplicate_key_matches_the_item_that_fits() {
        let twice = json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]});
        assert!(mismatches(&json!({"env": [{"name": "A", "value": "2"}]}), &twice).is_empty());
        assert_eq!(
            mismatches(&json!({"env": [{"name": "A", "value": "3"}]}), &twice),
            ["/env/name=A/value"]
        );
    }
}
