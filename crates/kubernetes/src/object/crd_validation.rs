//! Validates objects against the CustomResourceDefinitions that a plan creates or changes, because the
//! cluster has no schema for them yet, or an older one.
//!
//! The validation may miss errors (CEL rules, for example), but it rejects nothing that the server would
//! accept.

use serde_json::{Map, Value};

use konverge_base::model::{ClusterName, FieldPath, GroupKind, diff, masked_value};

/// A CustomResourceDefinition in the plan.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub cluster: ClusterName,
    body: Map<String, Value>,
    /// True if the plan creates or changes the definition. The server already knows an unchanged one.
    pub changes: bool,
}

/// The result of checking an object against its CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Check {
    /// The object is valid.
    Fits,
    /// The version has no schema.
    NoSchema,
    /// The violations, in at most ten sentences.
    Wrong(Vec<String>),
    /// The version is not served; with the served versions.
    NotServed(Vec<String>),
}

impl Definition {
    pub(crate) fn new(cluster: &ClusterName, body: &Map<String, Value>, changes: bool) -> Self {
        Self {
            cluster: cluster.clone(),
            body: body.clone(),
            changes,
        }
    }

    /// Returns the name of the CustomResourceDefinition.
    pub(crate) fn name(&self) -> &str {
        let metadata = self.body.get("metadata");
        metadata
            .and_then(|metadata| metadata["name"].as_str())
            .unwrap_or_default()
    }

    /// Returns true if the CustomResourceDefinition defines a kind.
    pub(crate) fn defines(&self, kind: GroupKind<'_>) -> bool {
        GroupKind::defined_by(&self.body) == Some(kind)
    }

    /// Returns true if the server accepts objects in that version.
    pub(crate) fn serves(&self, api_version: &str) -> bool {
        self.served()
            .any(|version| version["name"] == name_of(api_version))
    }

    fn served(&self) -> impl Iterator<Item = &Value> {
        let versions = self.body.get("spec").and_then(|spec| spec["versions"].as_array());
        let versions = versions.into_iter().flatten();
        versions.filter(|version| version["served"] != false)
    }

    fn schema(&self, api_version: &str) -> Option<&Value> {
        let mut served = self.served();
        let version = served.find(|version| version["name"] == name_of(api_version))?;
        version["schema"].get("openAPIV3Schema")
    }

    /// Validates an object. An invalid value that the live object already has is accepted, as by the server.
    pub(crate) fn check(&self, object: &Map<String, Value>, live: Option<&Value>) -> Check {
        let api_version = object.get("apiVersion").and_then(Value::as_str);
        let api_version = api_version.unwrap_or_default();
        if !self.serves(api_version) {
            let served = self.served().filter_map(|version| version["name"].as_str());
            return Check::NotServed(served.map(str::to_owned).collect());
        }
        let Some(schema) = self.schema(api_version) else {
            return Check::NoSchema;
        };
        let mut object = object.clone();
        for key in ["apiVersion", "kind", "metadata", "status"] {
            object.shift_remove(key);
        }
        let mut object = Value::Object(object);
        set_defaults(schema, &mut object);
        let mut found = Faults::default();
        found.validate(schema, &object, live, &FieldPath::root(), Level::Root);
        if found.0.is_empty() {
            Check::Fits
        } else {
            Check::Wrong(found.0)
        }
    }

    /// Sets the defaults of the schema in an object.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        if let Some(schema) = self.schema(api_version) {
            set_defaults(schema, object);
        }
    }
}

/// Returns true if a CustomResourceDefinition defines a namespaced kind.
pub(crate) fn is_namespaced(object: &Map<String, Value>) -> Option<bool> {
    match object.get("spec")?["scope"].as_str()? {
        "Namespaced" => Some(true),
        "Cluster" => Some(false),
        _ => None,
    }
}

fn name_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

fn set_defaults(schema: &Value, found: &mut Value) {
    if masked_value::is_unknown(found) {
        return;
    }
    match found {
        Value::Object(map) => {
            let properties = schema["properties"].as_object();
            for (key, below) in properties.into_iter().flatten() {
                let default = below.get("default").filter(|default| !default.is_null());
                let is_missing = match map.get(key) {
                    None => true,
                    // If the schema does not allow null, the server removes it before it sets defaults.
                    Some(Value::Null) => below["nullable"] != true,
                    Some(_) => false,
                };
                match default {
                    Some(default) if is_missing => drop(map.insert(key.clone(), default.clone())),
                    None if is_missing => continue,
                    _ => {}
                }
                if let Some(inside) = map.get_mut(key) {
                    set_defaults(below, inside);
                }
            }
            let others = &schema["additionalProperties"];
            if others.is_object() {
                let known = |key: &String| properties.is_some_and(|known| known.contains_key(key));
                for (_, inside) in map.iter_mut().filter(|(key, _)| !known(key)) {
                    set_defaults(others, inside);
                }
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| set_defaults(&schema["items"], item)),
        _ => {}
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Below,
}

/// The violations, in at most ten sentences.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, fault: String) {
        if self.0.len() < 10 {
            self.0.push(fault);
        }
    }

    fn validate(
        &mut self,
        schema: &Value,
        found: &Value,
        live: Option<&Value>,
        path: &FieldPath,
        level: Level,
    ) {
        let nullable = schema["nullable"] == true;
        // If null is not allowed, it counts as absent.
        if masked_value::is_unknown(found) || found.is_null() && (nullable || level == Level::Below) {
            return;
        }
        if !self.has_type(schema, found, path) {
            return;
        }
        // An unchanged value is accepted even if it is invalid.
        if live.is_none_or(|live| !diff::same(live, found)) {
            self.look_at_value(schema, found, path, level);
        }
        match found {
            Value::Object(map) => self.look_inside(schema, map, live, path, level),
            Value::Array(items) => {
                let live = live
                    .and_then(Value::as_array)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let same = live.iter().find(|live| diff::same(live, item));
                    let live = same.or_else(|| live.get(index));
                    self.validate(&schema["items"], item, live, &path.item(index), Level::Below);
                }
            }
            _ => {}
        }
    }

    fn has_type(&mut self, schema: &Value, found: &Value, path: &FieldPath) -> bool {
        let (wanted, has_it) = match schema["type"].as_str() {
            _ if schema["x-kubernetes-int-or-string"] == true => (
                "integer or string",
                found.is_string() || has_type(found, "integer"),
            ),
            Some(wanted) => (wanted, has_type(found, wanted)),
            None => return true,
        };
        if !has_it {
            self.add(format!("`{path}` must be of type {wanted}"));
        }
        has_it
    }

    fn look_at_value(&mut self, schema: &Value, found: &Value, path: &FieldPath, level: Level) {
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.iter().any(|one| diff::same(one, found))
        {
            let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
            self.add(format!("`{path}` must be one of {}", allowed.join(", ")));
        }
        if let Some(number) = found.as_f64() {
            self.look_at_number(schema, number, path);
        }
        let length = match found {
            Value::String(text) => Some((text.chars().count(), "minLength", "maxLength", "characters")),
            Value::Array(items) => Some((items.len(), "minItems", "maxItems", "items")),
            Value::Object(map) if level == Level::Below => {
                Some((map.len(), "minProperties", "maxProperties", "keys"))
            }
            _ => None,
        };
        if let Some((length, least, most, of)) = length {
            let limit = |key: &str| schema[key].as_u64().and_then(|limit| usize::try_from(limit).ok());
            if let Some(least) = limit(least).filter(|least| length < *least) {
                self.add(format!("`{path}` must have at least {least} {of}"));
            }
            if let Some(most) = limit(most).filter(|most| length > *most) {
                self.add(format!("`{path}` must have at most {most} {of}"));
            }
        }
        if let Value::Object(map) = found {
            let required = schema["required"].as_array().into_iter().flatten();
            let named = |key: &&str| level != Level::Root || !is_always_there(key);
            for key in required.filter_map(Value::as_str).filter(named) {
                let nullable = schema["properties"][key]["nullable"] == true;
                if map.get(key).is_none_or(|found| found.is_null() && !nullable) {
                    self.add(format!("`{}` is required", path.join(key)));
                }
            }
        }
    }

    fn look_at_number(&mut self, schema: &Value, number: f64, path: &FieldPath) {
        let (least, most) = (&schema["minimum"], &schema["maximum"]);
        if let Some(limit) = least.as_f64() {
            match schema["exclusiveMinimum"] == true {
                true if number <= limit => self.add(format!("`{path}` must be more than {least}")),
                false if number < limit => self.add(format!("`{path}` must be at least {least}")),
                _ => {}
            }
        }
        if let Some(limit) = most.as_f64() {
            match schema["exclusiveMaximum"] == true {
                true if number >= limit => self.add(format!("`{path}` must be less than {most}")),
                false if number > limit => self.add(format!("`{path}` must be at most {most}")),
                _ => {}
            }
        }
    }

    /// Reports fields that are not in the schema, even if they do not change.
    fn look_inside(
        &mut self,
        schema: &Value,
        map: &Map<String, Value>,
        live: Option<&Value>,
        path: &FieldPath,
        level: Level,
    ) {
        let others = &schema["additionalProperties"];
        let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
        let is_object = schema["x-kubernetes-embedded-resource"] == true;
        for (key, below) in map {
            let live = live.and_then(|live| live.get(key));
            let path = path.join(key);
            match schema["properties"].get(key) {
                Some(known) => self.validate(known, below, live, &path, Level::Below),
                None if others.is_object() => self.validate(others, below, live, &path, Level::Below),
                None if others == true || keeps_unknown => {}
                None if is_object && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") => {}
                None if level == Level::Root || schema["properties"].is_object() => {
                    self.add(format!("`{path}` is not in the schema"));
                }
                None => {}
            }
        }
    }
}

/// Returns true for keys that every object has, even if its schema does not contain them.
fn is_always_there(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata" | "status")
}

fn has_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(spec: Value) -> Definition {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let versions = json!([{"name": "v1", "served": true, "schema": schema}, {"name": "v0", "served": false}, {"name": "v2"}]);
        let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"group": "a.example.com", "names": {"kind": "Thing"}, "versions": versions}});
        Definition::new(&"c".parse().unwrap(), body.as_object().unwrap(), true)
    }

    fn thing(version: &str, spec: Value) -> Map<String, Value> {
        let thing = json!({"apiVersion": format!("a.example.com/{version}"), "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
        thing.as_object().unwrap().clone()
    }

    #[test]
    fn an_object_is_compared_with_the_schema_of_its_version() {
        let definition = definition(
            json!({"type": "object", "required": ["size", "tone"], "properties": {
            "size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "enum": ["a", "b"]},
            "tone": {"type": "string", "default": "calm", "maxLength": 4},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}),
        );
        let check =
            |spec: Value, live: Option<Value>| match definition.check(&thing("v1", spec), live.as_ref()) {
                Check::Fits => Vec::new(),
                Check::Wrong(wrong) => wrong,
                other => panic!("{other:?}"),
            };
        let wrong = |spec: Value| check(spec, None);
        assert!(definition.defines(GroupKind::new("a.example.com", "Thing")));
        assert!(wrong(json!({"size": 2, "mode": "a", "labels": {"x": "y"}})).is_empty());
        assert_eq!(
            wrong(json!({"mode": "c"})),
            [
                "`/spec/size` is required",
                "`/spec/mode` must be one of \"a\", \"b\""
            ]
        );
        assert_eq!(
            wrong(json!({"size": 0, "nope": 1})),
            [
                "`/spec/size` must be at least 1",
                "`/spec/nope` is not in the schema"
            ]
        );
        assert_eq!(
            wrong(json!({"size": 1, "labels": {"x": 1}})),
            ["`/spec/labels/x` must be of type string"]
        );
        assert_eq!(
            wrong(json!({"size": 1, "tone": "louder"})),
            ["`/spec/tone` must have at most 4 characters"]
        );
        // An accepted value may stay, except a field that no longer exists.
        let odd = json!({"size": 1, "mode": "c", "nope": 1});
        let live = json!({"spec": odd});
        assert_eq!(check(odd, Some(live)), ["`/spec/nope` is not in the schema"]);
    }

    #[test]
    fn a_version_that_is_not_served_is_not_taken_for_one_without_a_schema() {
        let definition = definition(json!({"type": "object"}));
        let check = |version: &str| definition.check(&thing(version, json!({})), None);
        let served = vec!["v1".to_owned(), "v2".to_owned()];
        assert_eq!(check("v0"), Check::NotServed(served.clone()));
        assert_eq!(check("v9"), Check::NotServed(served));
        assert_eq!((check("v1"), check("v2")), (Check::Fits, Check::NoSchema));
    }

    #[test]
    fn defaults_are_those_that_the_server_sets() {
        let schema = json!({"type": "object", "properties": {
            "mode": {"type": "string", "default": "calm"}, "none": {"type": "object", "properties": {"x": {"type": "string", "default": "x"}}},
            "deep": {"type": "object", "default": {}, "properties": {"size": {"type": "integer", "default": 3}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}}}});
        let mut object = json!({"list": [{}, {"on": false}]});
        set_defaults(&schema, &mut object);
        let list = json!([{"on": true}, {"on": false}]);
        assert_eq!(object, json!({"list": list, "mode": "calm", "deep": {"size": 3}}));
    }
}
