//! Parses the output of KCL, or a file, into the normal form of a Spec.
//!
//! All formats that Kusion has written are supported: a list of resources (v0.7, v0.8), a mapping with `resources`
//! (v0.9; later also with `secretStore` and `context`), one document per resource, v0.4's resources with `mode` or as
//! bare Kubernetes objects, and the `instances` of KusionStack's slides ([`instances`]). Anything else is an error that
//! names its path. An unknown key is an error too, because it is probably a typo.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    SpecError,
    error::{shape, unset},
    instances, reserved_markers,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        spec::{Resource, RuntimeKind, Spec},
        stack_output::OUTPUTS_KEY,
    },
    yaml,
};

/// The keys of a resource. `mode` is from v0.4 and has no effect.
const RESOURCE_KEYS: [&str; 6] = ["id", "type", "attributes", "dependsOn", "extensions", "mode"];

/// The keys of a Spec, including `resources`.
const SPEC_KEYS: [&str; 4] = ["resources", "secretStore", "context", OUTPUTS_KEY];

/// Parses the documents of a compilation into a Spec.
///
/// # Errors
/// A document has no supported format (the error names the path), or two resources have the same id.
pub fn read(documents: &[Value]) -> Result<Spec, SpecError> {
    let mut spec = Spec::default();
    let mut seen = HashMap::new();
    let many = documents.len() > 1;
    for (number, document) in documents.iter().enumerate() {
        let path = if many {
            format!("document {}", number + 1)
        } else {
            String::new()
        };
        read_document(document, &path, &mut spec, &mut seen)?;
    }
    reserved_markers::refuse(&spec)?;
    match spec.outputs() {
        Ok(_) => Ok(spec),
        Err(error) => Err(shape("", error.to_string())),
    }
}

/// Parses YAML or JSON text, from `--spec FILE` or a golden file.
///
/// # Errors
/// See [`read`]; also if the text of `file` is not YAML.
pub fn read_text(text: &str, file: &str) -> Result<Spec, SpecError> {
    let documents = yaml::documents(text)
        .map_err(|error| UserError::new(ErrorKind::Spec, error.message).at(file, error.line, error.column))?;
    read(&documents)
}

/// Adds resources and checks that their ids are unique.
pub(super) fn add(
    resource: Resource,
    path: String,
    spec: &mut Spec,
    seen: &mut HashMap<ResourceId, String>,
) -> Result<(), SpecError> {
    if let Some(earlier) = seen.get(&resource.id) {
        let id = &resource.id;
        let what = format!("{path}: the id `{id}` is already that of {earlier}");
        let hint = format!("give one of the two resources another id, or print `{id}` once");
        return Err(UserError::new(ErrorKind::Spec, what).hint(hint).into());
    }
    seen.insert(resource.id.clone(), path);
    spec.resources.push(resource);
    Ok(())
}

fn read_document(
    document: &Value,
    path: &str,
    spec: &mut Spec,
    seen: &mut HashMap<ResourceId, String>,
) -> Result<(), SpecError> {
    match document {
        Value::Null => Ok(()),
        Value::Array(items) => read_list(items, path, spec, seen),
        Value::Object(map) if map.is_empty() => Ok(()),
        Value::Object(map) if map.contains_key("resources") => {
            if let Some(unknown) = map.keys().find(|key| !SPEC_KEYS.contains(&key.as_str())) {
                return Err(shape(path, unknown_key(unknown, "a Spec", &SPEC_KEYS)));
            }
            let store = mapping(map, "secretStore", path)?;
            // An empty provider means the same as no store, so the Spec then has no store of its own.
            let says_nothing = |(key, value): (&String, &Value)| {
                key == "provider" && (value.is_null() || value.as_object().is_some_and(Map::is_empty))
            };
            spec.secret_stores
                .extend(store.filter(|store| !store.iter().all(says_nothing)));
            for (name, value) in mapping(map, OUTPUTS_KEY, path)?.unwrap_or_default() {
                if spec.outputs.insert(name.clone(), value).is_some() {
                    let name = name.escape_debug();
                    return Err(shape(path, format!("two outputs have the name `{name}`")));
                }
            }
            let list = join(path, "resources");
            match items(&map["resources"], &list)? {
                Some(items) => read_list(items, &list, spec, seen),
                None => Ok(()),
            }
        }
        Value::Object(map) if map.contains_key("instances") && !is_resource(map) && !is_object(map) => {
            if let Some(unknown) = map.keys().find(|key| *key != "instances") {
                return Err(shape(path, unknown_key(unknown, "a Spec", &["instances"])));
            }
            let list = join(path, "instances");
            let Some(instances) = items(&map["instances"], &list)? else {
                return Ok(());
            };
            let resources: Vec<_> = (0..)
                .zip(instances)
                .map(|(index, item): (usize, _)| instances::to_resource(item, &format!("{list}[{index}]")))
                .collect::<Result<_, _>>()?;
            read_list(&resources, &list, spec, seen)
        }
        Value::Object(map) if is_resource(map) || is_object(map) => {
            let place = if path.is_empty() { "the document" } else { path };
            add(read_resource(document, path)?, place.to_owned(), spec, seen)
        }
        Value::Object(map) => {
            let keys: Vec<_> = map
                .keys()
                .take(5)
                .map(|key| format!("`{}`", key.escape_debug()))
                .collect();
            Err(shape(
                path,
                format!("is not a Spec: it has {} and no `resources`", keys.join(", ")),
            ))
        }
        other => Err(shape(path, format!("is not a Spec but {}", kind(other)))),
    }
}

/// Returns the items of a list; `None` for null.
fn items<'a>(value: &'a Value, path: &str) -> Result<Option<&'a [Value]>, SpecError> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => Ok(Some(items)),
        other => Err(shape(path, format!("must be a list, is {}", kind(other)))),
    }
}

fn read_list(
    items: &[Value],
    path: &str,
    spec: &mut Spec,
    seen: &mut HashMap<ResourceId, String>,
) -> Result<(), SpecError> {
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        add(read_resource(item, &path)?, path, spec, seen)?;
    }
    Ok(())
}

/// Returns true if a map looks like a resource of a Spec.
fn is_resource(map: &Map<String, Value>) -> bool {
    map.contains_key("attributes") || (map.contains_key("id") && !map.contains_key("apiVersion"))
}

/// Returns true if a map is a bare Kubernetes object.
fn is_object(map: &Map<String, Value>) -> bool {
    map.contains_key("apiVersion") && map.contains_key("kind")
}

/// Parses one resource or one bare Kubernetes object.
pub(super) fn read_resource(value: &Value, path: &str) -> Result<Resource, SpecError> {
    let Value::Object(map) = value else {
        return Err(shape(
            path,
            format!(
                "must be a resource, a mapping with `id`, `type` and `attributes`, is {}",
                kind(value)
            ),
        ));
    };
    if !is_resource(map) && is_object(map) {
        return Ok(Resource::new(
            object_id(map, path)?,
            RuntimeKind::Kubernetes,
            map.clone(),
        ));
    }
    if let Some(unknown) = map.keys().find(|key| !RESOURCE_KEYS.contains(&key.as_str())) {
        return Err(shape(path, unknown_key(unknown, "a resource", &RESOURCE_KEYS)));
    }
    let attributes =
        mapping(map, "attributes", path)?.ok_or_else(|| shape(path, "has no `attributes`".to_owned()))?;
    let id_path = join(path, "id");
    let id = match map.get("id") {
        Some(Value::String(text)) => text
            .parse()
            .map_err(|error| shape(&id_path, format!("{error}")))?,
        Some(other) => return Err(shape(&id_path, format!("must be a string, is {}", kind(other)))),
        None => return Err(shape(path, "has no `id`".to_owned())),
    };
    let runtime = runtime(map, &attributes, path)?;
    if runtime == RuntimeKind::Kubernetes {
        // A bare object without kind or name would get no id, so its identity is checked first.
        object_id(&attributes, &join(path, "attributes"))?;
    }
    Ok(Resource {
        id,
        runtime,
        attributes,
        depends_on: depends_on(map, path)?,
        extensions: mapping(map, "extensions", path)?.unwrap_or_default(),
        sharing: konverge_base::model::spec::Sharing::default(),
    })
}

fn runtime(
    map: &Map<String, Value>,
    attributes: &Map<String, Value>,
    path: &str,
) -> Result<RuntimeKind, SpecError> {
    let type_path = join(path, "type");
    match map.get("type") {
        Some(Value::String(text)) if text == "Kubernetes" => Ok(RuntimeKind::Kubernetes),
        Some(Value::String(text)) if text == "Terraform" => Ok(RuntimeKind::Terraform),
        Some(Value::String(text)) => Err(shape(
            &type_path,
            format!(
                "`{}` is not a runtime: Kubernetes or Terraform",
                text.escape_debug()
            ),
        )),
        Some(other) => Err(shape(&type_path, format!("must be a string, is {}", kind(other)))),
        // Kusion 0.4 supported only Kubernetes and wrote no type, so a Kubernetes object without a type is accepted.
        None if is_object(attributes) => Ok(RuntimeKind::Kubernetes),
        None => Err(shape(path, "has no `type`: Kubernetes or Terraform".to_owned())),
    }
}

fn depends_on(map: &Map<String, Value>, path: &str) -> Result<Vec<ResourceId>, SpecError> {
    let path = join(path, "dependsOn");
    let items = match map.get("dependsOn") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(shape(&path, format!("must be a list of ids, is {}", kind(other))));
        }
    };
    let read = |(index, item): (usize, &Value)| {
        let path = format!("{path}[{index}]");
        match item {
            Value::String(text) => text.parse().map_err(|error| shape(&path, format!("{error}"))),
            other => Err(shape(&path, format!("must be an id, is {}", kind(other)))),
        }
    };
    items.iter().enumerate().map(read).collect()
}

/// Returns Kusion's id of a Kubernetes object: `apiVersion:Kind[:namespace]:name`.
fn object_id(object: &Map<String, Value>, path: &str) -> Result<ResourceId, SpecError> {
    let who = match object.get("kind").and_then(Value::as_str) {
        Some(kind) => format!("the `{}`", kind.escape_debug()),
        None => "the object".to_owned(),
    };
    let text = |map: &Map<String, Value>, key: &str, path: &str| match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_)) => Err(shape(&join(path, key), "must not be empty".to_owned())),
        Some(Value::Null) => Err(unset(
            &join(path, key),
            format!("is null, but {who} needs a string there"),
        )),
        Some(other) => Err(shape(
            &join(path, key),
            format!("must be a string, is {}", kind(other)),
        )),
        None => Err(unset(path, format!("has no `{key}`, which {who} needs"))),
    };
    let api_version = text(object, "apiVersion", path)?;
    let object_kind = text(object, "kind", path)?;
    let metadata_path = join(path, "metadata");
    let metadata = mapping(object, "metadata", path)?
        .ok_or_else(|| unset(path, format!("has no `metadata`, which {who} needs")))?;
    if !metadata.contains_key("name") && metadata.contains_key("generateName") {
        let why = "has `generateName` and no `name`: every apply would create another object".to_owned();
        return Err(shape(&metadata_path, why));
    }
    let name = text(&metadata, "name", &metadata_path)?;
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => String::new(),
        Some(_) => text(&metadata, "namespace", &metadata_path)? + ":",
    };
    format!("{api_version}:{object_kind}:{namespace}{name}")
        .parse()
        .map_err(|error| shape(path, format!("{error}")))
}

fn mapping(map: &Map<String, Value>, key: &str, path: &str) -> Result<Option<Map<String, Value>>, SpecError> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner.clone())),
        Some(other) => Err(shape(
            &join(path, key),
            format!("must be a mapping, is {}", kind(other)),
        )),
    }
}

fn unknown_key(key: &str, what: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|known| (strsim::osa_distance(key, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    let shown = key.escape_debug();
    match nearest {
        Some((_, nearest)) => format!("`{shown}` is not a key of {what}; did you mean `{nearest}`?"),
        None => format!("`{shown}` is not a key of {what}"),
    }
}

/// Returns the name of a value's JSON type, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(spec: &Spec) -> Vec<&str> {
        spec.resources
            .iter()
            .map(|resource| resource.id.as_str())
            .collect()
    }

    const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ns}\n";

    #[test]
    fn what_is_neither_a_resource_nor_an_object_is_said_so() {
        let error = |text: &str| read_text(text, "f").unwrap_err().to_string();
        let half = error("resources:\n- {kind: ConfigMap, metadata: {name: a}}\n");
        assert!(!half.contains("apiVersion"), "it is read as a resource: {half}");
        let unnamed = error(&OBJECT.replace("name: a", "name: ''"));
        assert!(
            unnamed.contains("metadata.name") && unnamed.contains("must not be empty"),
            "{unnamed}"
        );
    }

    #[test]
    fn every_shape_reads_to_the_same_spec() {
        let resource = "id: v1:ConfigMap:ns:a\ntype: Kubernetes\nattributes: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}}\n";
        let indented = resource.replace('\n', "\n  ");
        let shapes = [
            format!("- {indented}"),
            format!("resources:\n- {indented}"),
            format!("resources:\n- {indented}\nsecretStore: {{provider: {{}}}}\ncontext: {{a: 1}}\n"),
            resource.to_owned(),
            format!("---\n{resource}---\n"),
            OBJECT.to_owned(),
            format!("- {}", OBJECT.replace('\n', "\n  ")),
            format!("{}mode: managed\n", resource.replace("type: Kubernetes\n", "")),
        ];
        let expected = read_text(&shapes[0], "f").unwrap();
        assert_eq!(ids(&expected), ["v1:ConfigMap:ns:a"]);
        for shape in &shapes {
            assert_eq!(read_text(shape, "f").unwrap(), expected, "{shape}");
        }
    }

    #[test]
    fn a_document_with_an_id_is_a_resource_and_one_with_a_version_is_an_object() {
        let message = |text: &str| read_text(text, "f").unwrap_err().to_string();
        assert_eq!(message("{id: a, type: Terraform}"), "has no `attributes`");
        assert_eq!(
            message("{id: a, apiVersion: v1}"),
            "is not a Spec: it has `id`, `apiVersion` and no `resources`"
        );
        // One document needs no number.
        assert_eq!(
            message("resources: {a: 1}"),
            "resources: must be a list, is a mapping"
        );
    }

    #[test]
    fn an_object_without_a_name_is_refused_by_what_it_has_instead() {
        let object =
            |metadata: &str| read_text(&format!("{{apiVersion: v1, kind: A, metadata: {metadata}}}"), "f");
        let message = |metadata: &str| object(metadata).unwrap_err().to_string();
        assert_eq!(
            message("{labels: {}}"),
            "metadata: has no `name`, which the `A` needs"
        );
        assert_eq!(
            message("{name: null}"),
            "metadata.name: is null, but the `A` needs a string there"
        );
        assert!(message("{generateName: a-}").starts_with("metadata: has `generateName` and no `name`"));
        assert_eq!(ids(&object("{name: a, generateName: a-}").unwrap()), ["v1:A:a"]);
    }

    #[test]
    fn a_secret_store_that_says_nothing_is_none() {
        let stores = |store: &str| {
            let spec = read_text(&format!("{{resources: [], secretStore: {store}}}"), "f").unwrap();
            spec.secret_stores.len()
        };
        for (store, count) in [
            ("{}", 0),
            ("{provider: }", 0),
            ("{provider: {}}", 0),
            ("{provider: {aws: {region: a}}}", 1),
            ("{other: {}}", 1),
            ("{other: }", 1),
        ] {
            assert_eq!(stores(store), count, "{store}");
        }
    }

    #[test]
    fn nothing_is_an_empty_spec() {
        for text in ["", "[]", "{}", "resources: []", "resources:", "---\n---\n"] {
            assert_eq!(read_text(text, "f").unwrap(), Spec::default(), "{text:?}");
        }
    }

    #[test]
    fn every_fault_names_its_path() {
        let attributes = json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}});
        let cases = [
            (json!({"a": 1}), "is not a Spec: it has `a` and no `resources`"),
            (json!("text"), "is not a Spec but text"),
            (json!([1]), "[0]: must be a resource"),
            (
                json!([{"id": "a", "type": "Kubernetes"}]),
                "[0]: has no `attributes`",
            ),
            (
                json!([{"type": "Kubernetes", "attributes": attributes}]),
                "[0]: has no `id`",
            ),
            (
                json!([{"id": 1, "type": "Kubernetes", "attributes": attributes}]),
                "[0].id: must be a string, is a number",
            ),
            (
                json!([{"id": "a", "type": "Helm", "attributes": attributes}]),
                "[0].type: `Helm` is not a runtime",
            ),
            (json!([{"id": "a", "attributes": {"x": 1}}]), "[0]: has no `type`"),
            (
                json!([{"id": "a", "type": "Kubernetes", "attributes": {"kind": "A"}}]),
                "[0].attributes: has no `apiVersion`",
            ),
            (
                json!([{"id": "a", "type": "Kubernetes", "attributes": attributes, "dependson": []}]),
                "did you mean `dependsOn`?",
            ),
            (
                json!([{"id": "a", "type": "Kubernetes", "attributes": attributes, "dependsOn": [1]}]),
                "[0].dependsOn[0]: must be an id",
            ),
            (
                json!({"resources": [], "resource": 1}),
                "did you mean `resources`?",
            ),
            (
                json!({"resources": {"a": 1}}),
                "resources: must be a list, is a mapping",
            ),
            (
                json!([{"apiVersion": "v1", "kind": "A", "metadata": {"name": 1}}]),
                "[0].metadata.name: must be a string",
            ),
            (
                json!([{"apiVersion": "v1", "kind": "A", "metadata": {"generateName": "a-"}}]),
                "[0].metadata: has `generateName` and no `name`",
            ),
        ];
        for (value, words) in cases {
            let error = read(std::slice::from_ref(&value)).unwrap_err().to_string();
            assert!(error.contains(words), "{value}: {error}");
        }
    }

    #[test]
    fn an_id_stands_once() {
        let two = format!("{OBJECT}---\n{OBJECT}");
        let error = read_text(&two, "f").unwrap_err();
        assert_eq!(
            error.to_string(),
            "document 2: the id `v1:ConfigMap:ns:a` is already that of document 1"
        );
    }

    #[test]
    fn broken_text_has_file_and_line() {
        let failure =
            konverge_base::error::UserError::from(read_text("a: 1\nb: [\n", "spec.yaml").unwrap_err());
        let place = failure.location.unwrap();
        assert_eq!(place.file, "spec.yaml");
        assert!(place.line.is_some());
    }

    #[test]
    fn types_survive() {
        let text = "- {id: a, type: Terraform, attributes: {a: \"1\", b: 9223372036854775807, c: 1.0, d: 'x\n\n  y'}}";
        let spec = read_text(text, "f").unwrap();
        assert_eq!(
            Value::Object(spec.resources[0].attributes.clone()).to_string(),
            r#"{"a":"1","b":9223372036854775807,"c":1.0,"d":"x\ny"}"#
        );
    }

    proptest::proptest! {
        /// Like `fuzz/fuzz_targets/spec.rs`, with text that is often nearly a Spec.
        #[test]
        fn any_text_is_refused_or_reads_back_as_the_same(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "resources:\n", "- ", "  ", "\n", "---\n", "id: a", "id: b", "type: Terraform", "attributes: ", "{x: ", "}", "[", "]",
                "1.0", "1e400", ".nan", "'1'", "~", "!!str 1", "&a", "*a", "<<: ", "|\n  x\n", "\"\\u0000\"", "0x1F", "yes", ",", "dependsOn: [a]",
            ]), 0..40),
        ) {
            if let Ok(spec) = read_text(&parts.concat(), "f") {
                let written = yaml::to_string(&serde_json::json!({"resources": spec.resources}));
                proptest::prop_assert_eq!(read_text(&written, "g").unwrap().digest(), spec.digest(), "{}", written);
            }
        }

        #[test]
        fn values_of_every_kind_read_back_as_the_same(text in "\\PC{0,40}", number in proptest::num::f64::NORMAL, whole: i64) {
            let attributes = serde_json::json!({"t": text, "n": number, "w": whole, "l": [text, {text.clone(): number}]});
            let spec = serde_json::json!({"resources": [{"id": "a", "type": "Terraform", "attributes": attributes}]});
            let Ok(spec) = read(&[spec]) else {
                return Ok(());
            };
            let written = yaml::to_string(&serde_json::json!({"resources": spec.resources}));
            proptest::prop_assert_eq!(read_text(&written, "g").unwrap().digest(), spec.digest(), "{}", written);
        }
    }
}
