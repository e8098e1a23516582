//! The keywords that restrict a value, as checks. What KCL cannot check as the server does is counted.

use serde_json::{Map, Value};

use crate::{
    names::{AttributeName, attribute_name, literal_type, quoted},
    patterns,
    schema::{ModelObject, ModelType, ModelValue, ValueCheck},
};

/// The use that a server makes of the schemas of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRules {
    /// Schemas of custom resources: the server sets defaults before it validates, and validates by the schema.
    Custom,
    /// Schemas of built-in kinds: the server validates by code of its own, and the schema only describes the types.
    BuiltIn,
}

type Fields = Map<String, Value>;

/// The checks of a value, as far as KCL does them as the server does.
pub(crate) fn checked(
    kind: ModelType,
    fields: &Fields,
    owner: &mut ModelObject,
    server: ServerRules,
) -> ModelValue {
    let mut checks = Vec::new();
    let is_mixed = matches!(&kind, ModelType::Union(kinds) if *kinds == [ModelType::Int, ModelType::Str]);
    let count = |name: &str| fields.get(name).and_then(Value::as_u64);
    let mut add = |applies: bool, keyword: &str, check: Option<ValueCheck>| match check {
        _ if !fields.contains_key(keyword) => {}
        Some(check) if applies => checks.push(check),
        _ => owner.leave_out(keyword, 1),
    };
    let is_text = matches!(kind, ModelType::Str | ModelType::Literals(_)) || is_mixed;
    add(
        is_text,
        "minLength",
        count("minLength").map(ValueCheck::MinLength),
    );
    add(
        is_text,
        "maxLength",
        count("maxLength").map(ValueCheck::MaxLength),
    );
    let pattern = fields
        .get("pattern")
        .and_then(Value::as_str)
        .and_then(patterns::translate);
    add(is_text, "pattern", pattern.map(ValueCheck::Pattern));
    let is_number = matches!(kind, ModelType::Int | ModelType::Float);
    let limit = |name: &str| number(fields.get(name)?);
    let exclusive = |name: &str| is_true(fields, name);
    add(
        is_number,
        "minimum",
        limit("minimum").map(|limit| ValueCheck::Minimum {
            limit,
            exclusive: exclusive("exclusiveMinimum"),
        }),
    );
    add(
        is_number,
        "maximum",
        limit("maximum").map(|limit| ValueCheck::Maximum {
            limit,
            exclusive: exclusive("exclusiveMaximum"),
        }),
    );
    let step = fields
        .get("multipleOf")
        .and_then(Value::as_i64)
        .filter(|step| *step > 0);
    add(
        kind == ModelType::Int,
        "multipleOf",
        step.map(ValueCheck::MultipleOf),
    );
    let is_list = matches!(kind, ModelType::List(_));
    add(is_list, "minItems", count("minItems").map(ValueCheck::MinItems));
    add(is_list, "maxItems", count("maxItems").map(ValueCheck::MaxItems));
    let is_map = matches!(kind, ModelType::Map(_));
    add(
        is_map,
        "minProperties",
        count("minProperties").map(ValueCheck::MinItems),
    );
    add(
        is_map,
        "maxProperties",
        count("maxProperties").map(ValueCheck::MaxItems),
    );
    let is_scalar = matches!(kind, ModelType::Bool | ModelType::Int | ModelType::Str);
    add(
        is_scalar || matches!(kind, ModelType::Literals(_)),
        "enum",
        match &kind {
            // The type says it.
            ModelType::Literals(_) => Some(ValueCheck::OneOf(Vec::new())),
            _ => literals(fields).map(ValueCheck::OneOf),
        },
    );
    let unique = unique(&kind, fields, server);
    add(
        is_list,
        "x-kubernetes-list-type",
        match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set" | "map") => unique,
            // Nothing to check.
            _ => Some(ValueCheck::OneOf(Vec::new())),
        },
    );
    add(false, "uniqueItems", None);
    checks.retain(|check| *check != ValueCheck::OneOf(Vec::new()));
    ModelValue { kind, checks }
}

/// The uniqueness of a list. Of built-in kinds the server allows equal items in a create.
fn unique(kind: &ModelType, fields: &Fields, server: ServerRules) -> Option<ValueCheck> {
    let ModelType::List(items) = kind else { return None };
    if server == ServerRules::BuiltIn {
        return None;
    }
    match (fields.get("x-kubernetes-list-type")?.as_str()?, &items.kind) {
        ("set", ModelType::Str | ModelType::Int | ModelType::Bool | ModelType::Literals(_)) => {
            Some(ValueCheck::UniqueItems)
        }
        ("map", ModelType::Object(item)) => {
            let keys = fields.get("x-kubernetes-list-map-keys")?.as_array()?;
            let keys: Option<Vec<_>> = keys.iter().map(|key| key.as_str().map(str::to_owned)).collect();
            let keys = keys.filter(|keys| !keys.is_empty())?;
            let is_known = |key: &String| {
                matches!(attribute_name(key), AttributeName::Identifier(_))
                    && item.properties.iter().any(|property| property.name == *key)
            };
            keys.iter().all(is_known).then_some(ValueCheck::UniqueKeys(keys))
        }
        _ => None,
    }
}

/// The values of an `enum` of strings that can be types.
pub(crate) fn string_literals(fields: &Fields) -> Option<Vec<String>> {
    let values = fields.get("enum")?.as_array()?;
    let texts = values.iter().filter(|value| !value.is_null()).map(|value| {
        let text = value.as_str()?;
        literal_type(text).map(|_| text.to_owned())
    });
    texts
        .collect::<Option<Vec<_>>>()
        .filter(|texts| !texts.is_empty())
}

/// The values of an `enum` as literals of KCL. `null` is a value of every type.
fn literals(fields: &Fields) -> Option<Vec<String>> {
    let values = fields.get("enum")?.as_array()?;
    let values = values
        .iter()
        .filter(|value| !value.is_null())
        .map(|value| match value {
            Value::String(text) => quoted(text),
            Value::Bool(true) => Some("True".to_owned()),
            Value::Bool(false) => Some("False".to_owned()),
            Value::Number(_) => number(value).filter(|number| !number.contains('.')),
            _ => None,
        });
    values
        .collect::<Option<Vec<_>>>()
        .filter(|values| !values.is_empty())
}

/// A number as KCL reads it exactly; integers beyond 64 bits wrap there.
fn number(value: &Value) -> Option<String> {
    if let Some(whole) = value.as_i64() {
        return Some(whole.to_string());
    }
    let number = value
        .as_f64()
        .filter(|number| number.abs() < 1e15 && !value.is_u64())?;
    let text = number.to_string();
    (number == 0.0 || number.abs() >= 1e-6).then(|| {
        if text.contains('.') {
            text
        } else {
            format!("{text}.0")
        }
    })
}

pub(crate) fn is_true(fields: &Fields, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}
