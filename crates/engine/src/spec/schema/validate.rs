//! [`SchemaWalk`]: traverses an object together with its schema.

use serde_json::{Map, Value};

use super::BuiltIn;
use konverge_base::model::{masked_value::is_unknown, reference::MARK};

/// A value of an object that its schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The path from the top of the object, such as `spec.containers[0].image`.
    pub path: String,
    /// The description of the error. It never contains the value, which may be secret.
    pub message: String,
}

/// The origin of a schema. An object without listed fields may contain anything in one dialect, and nothing in the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    BuiltIn,
    Definition,
}

/// The traversal of an object.
pub(super) struct SchemaWalk<'a> {
    built_in: &'a BuiltIn,
    path: Vec<String>,
    faults: Vec<Violation>,
}

/// The maximum depth of an object. No server accepts a deeper one, and the recursion stays within the thread's stack.
const DEPTH: usize = 128;

impl<'a> SchemaWalk<'a> {
    /// Returns the violations of a whole object.
    pub(super) fn validate(
        object: &Map<String, Value>,
        schema: &Value,
        dialect: SchemaDialect,
        built_in: &'a BuiltIn,
    ) -> Vec<Violation> {
        let mut walk = Self {
            built_in,
            path: Vec::new(),
            faults: Vec::new(),
        };
        walk.object(object, schema, dialect, true);
        walk.faults
    }

    fn value(&mut self, value: &Value, schema: &Value, dialect: SchemaDialect) {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let built_in = self.built_in;
            let schema = built_in.types.get(name).unwrap_or(&Value::Null);
            return self.value(value, schema, SchemaDialect::BuiltIn);
        }
        // Null counts as absent, because the server drops it. A reference or an unknown value may become any type, so
        // it is not checked.
        let is_reference = value.as_str().is_some_and(|text| text.starts_with(MARK)) || is_unknown(value);
        if value.is_null() || is_reference || self.path.len() > DEPTH {
            return;
        }
        let wanted = types(schema);
        if !wanted.is_empty() && !wanted.iter().any(|wanted| is(value, wanted)) {
            let message = format!("must be {}, is {}", wanted.join(" or "), name_of(value));
            return self.fault(message);
        }
        self.validate_list(value, schema);
        self.bounds(value, schema, dialect);
        match value {
            Value::Object(map) => {
                let root = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
                self.object(map, schema, dialect, root);
            }
            Value::Array(items) => {
                let Some(schema) = schema.get("items") else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.descend(format!("[{index}]"), |walk| walk.value(item, schema, dialect));
                }
            }
            _ => {}
        }
    }

    /// Validates a map. If `whole` is true, the map is a whole object: `apiVersion`, `kind` and `metadata` are allowed
    /// even if the schema does not list them, and `status` is not checked.
    fn object(&mut self, map: &Map<String, Value>, schema: &Value, dialect: SchemaDialect, whole: bool) {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let free = match dialect {
            SchemaDialect::BuiltIn => properties.is_none() && additional.is_none(),
            SchemaDialect::Definition => {
                schema.get("type").is_none()
                    || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
            }
        } || additional == Some(&Value::Bool(true));
        let properties = properties.unwrap_or(&none);
        for (key, value) in map {
            let found = properties.get(key);
            self.descend(segment(key), |walk| match (key.as_str(), found, additional) {
                ("apiVersion" | "kind" | "status", _, _) if whole => {}
                ("metadata", _, _) if whole && dialect == SchemaDialect::Definition => walk.metadata(value),
                (_, Some(schema), _) => walk.value(value, schema, dialect),
                (_, None, Some(schema @ Value::Object(_))) => walk.value(value, schema, dialect),
                (_, None, _) if free || value.is_null() => {}
                (_, None, _) => {
                    let meant = nearest(key, properties.keys().map(String::as_str));
                    walk.fault(format!("is not a field of this kind{meant}"));
                }
            });
        }
        let required = schema.get("required").and_then(Value::as_array);
        let absent = |key: &&str| map.get(*key).is_none_or(Value::is_null);
        let missing = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(absent);
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        for key in missing {
            self.descend(segment(&key), |walk| walk.fault("is required".to_owned()));
        }
    }

    fn metadata(&mut self, value: &Value) {
        let built_in = self.built_in;
        if let Some(schema) = built_in.types.get("apis.meta.v1.ObjectMeta") {
            self.value(value, schema, SchemaDialect::BuiltIn);
        }
    }

    fn validate_list(&mut self, value: &Value, schema: &Value) {
        let Some(listed) = schema.get("enum").and_then(Value::as_array) else {
            return;
        };
        if !listed.contains(value) {
            let listed: Vec<String> = listed.iter().map(Value::to_string).collect();
            self.fault(format!("must be one of {}", listed.join(", ")));
        }
    }

    fn bounds(&mut self, value: &Value, schema: &Value, dialect: SchemaDialect) {
        let (size, least, most, unit) = match value {
            Value::Number(number) => (number.as_f64(), "minimum", "maximum", ""),
            Value::String(text) => (
                Some(text.chars().count() as f64),
                "minLength",
                "maxLength",
                " characters",
            ),
            Value::Array(items) => (Some(items.len() as f64), "minItems", "maxItems", " items"),
            Value::Object(map) => (
                Some(map.len() as f64),
                "minProperties",
                "maxProperties",
                " fields",
            ),
            _ => return,
        };
        let Some(size) = size else {
            return;
        };
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        let small = dialect == SchemaDialect::BuiltIn
            && value.is_number()
            && schema.get("format").and_then(Value::as_str) == Some("int32");
        let bound = |key: &str, small_limit: i32| limit(key).or(small.then_some(f64::from(small_limit)));
        if let Some(limit) = bound(least, i32::MIN)
            && size < limit
        {
            self.fault(format!("must be at least {limit}{unit}"));
        }
        if let Some(limit) = bound(most, i32::MAX)
            && size > limit
        {
            self.fault(format!("must be at most {limit}{unit}"));
        }
    }

    fn descend(&mut self, step: String, walk: impl FnOnce(&mut Self)) {
        self.path.push(step);
        walk(self);
        self.path.pop();
    }

    fn fault(&mut self, message: String) {
        let path = self.path.concat().trim_start_matches('.').to_owned();
        self.faults.push(Violation { path, message });
    }
}

/// Returns the types that a schema allows; empty if the schema does not restrict the type.
fn types<'a>(schema: &'a Value) -> Vec<&'a str> {
    let either = schema.get("format").and_then(Value::as_str) == Some("int-or-string")
        || schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    if either {
        return vec!["integer", "string"];
    }
    let of = |schema: &'a Value| schema.get("type").and_then(Value::as_str);
    match of(schema) {
        Some(one) => vec![one],
        // A quantity is a string or a number.
        None => {
            let several = schema.get("oneOf").and_then(Value::as_array);
            several.into_iter().flatten().filter_map(of).collect()
        }
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match (wanted, value) {
        // An integer may be written with a decimal point.
        ("integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        ("integer" | "number" | "string" | "boolean" | "array" | "object", _) => false,
        // An unknown type may come from a later version of the standard, so it is not refused.
        _ => true,
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats a key as a segment of a path.
fn segment(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    if !key.is_empty() && key.chars().all(plain) {
        format!(".{key}")
    } else {
        format!("[{}]", Value::String(key.to_owned()))
    }
}

/// Returns `; did you mean …?` if one of the known names is similar.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    known
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(name.len()) / 3)
        .map(|(_, known)| format!("; did you mean `{known}`?"))
        .unwrap_or_default()
}
