//! Translates the keywords that restrict a value to checks. Keywords that KCL cannot check exactly as the server
//! does are only counted.

use serde_json::{Map, Value};

use crate::{
    names::{AttributeName, attribute_name, literal_type, quoted},
    patterns,
    schema::{ModelObject, ModelType, ModelValue, ValueCheck},
};

/// Makes the check of a minimum or a maximum.
type CountCheck = fn(u64) -> ValueCheck;

/// The server's use of the schemas of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRules {
    /// Custom resources: the server sets defaults first, and then validates with the schema.
    Custom,
    /// Built-in kinds: the server validates with its own code, and the schema only describes the types.
    BuiltIn,
}

type Fields = Map<String, Value>;

/// Returns the value with those checks that KCL can do exactly as the server does.
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
    let is_list = matches!(kind, ModelType::List(_));
    let is_map = matches!(kind, ModelType::Map(_));
    let counts: [(bool, &str, CountCheck); 6] = [
        (is_text, "minLength", ValueCheck::MinLength),
        (is_text, "maxLength", ValueCheck::MaxLength),
        (is_list, "minItems", ValueCheck::MinItems),
        (is_list, "maxItems", ValueCheck::MaxItems),
        (is_map, "minProperties", ValueCheck::MinItems),
        (is_map, "maxProperties", ValueCheck::MaxItems),
    ];
    for (applies, keyword, check) in counts {
        add(applies, keyword, count(keyword).map(check));
    }
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
    let is_scalar = matches!(kind, ModelType::Bool | ModelType::Int | ModelType::Str);
    add(
        is_scalar || matches!(kind, ModelType::Literals(_)),
        "enum",
        match &kind {
            // The literal type already checks this. The empty `OneOf` marks the keyword as handled, and is removed
            // below.
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
            // Other list types need no check. The empty `OneOf` marks the keyword as handled, and is removed below.
            _ => Some(ValueCheck::OneOf(Vec::new())),
        },
    );
    add(false, "uniqueItems", None);
    checks.retain(|check| *check != ValueCheck::OneOf(Vec::new()));
    ModelValue { kind, checks }
}

/// Returns the check that list items are unique. For built-in kinds there is none, because the server accepts equal
/// items at a creation.
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

/// Returns the values of an `enum` of strings, if all can be literal types.
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

/// Returns the values of an `enum` as KCL literals, without `null`, which every type allows.
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

/// Returns a number as a KCL literal with exactly this value. KCL would wrap integers of more than 64 bits.
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

/// Returns a text, or an empty one.
pub(crate) fn text(fields: &Fields, name: &str) -> String {
    let text = fields.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
