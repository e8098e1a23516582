//! Translates the schemas of CRDs and of OpenAPI to types with checks.

use serde_json::{Map, Value};

use crate::{
    error::{MOST_LEVELS, MOST_PROPERTIES, ModelError},
    json_checks::{ServerRules, checked, is_true, string_literals, text},
    required,
    schema::{ModelObject, ModelProperty, ModelType, ModelValue, Presence},
};

/// Resolves the name in a `$ref`.
pub(crate) type Resolve<'r, 'a> = &'r dyn Fn(&str) -> Option<ReferenceTarget<'a>>;

/// The target of a reference.
pub(crate) enum ReferenceTarget<'a> {
    /// An object with a name.
    Named(ModelType),
    /// A schema without a name of its own, which is translated where it is used.
    Inline(&'a Value),
}

/// Translates the schemas of one document.
pub(crate) struct SchemaReader<'r, 'a> {
    resolve: Resolve<'r, 'a>,
    /// The server's use of the schemas: custom resources get defaults from them.
    server: ServerRules,
    /// The current path in the document, for errors.
    path: Vec<String>,
    properties: usize,
}

/// Keywords that restrict a value and that KCL cannot express.
const LEFT_OUT: [&str; 8] = [
    "not",
    "if",
    "patternProperties",
    "dependencies",
    "propertyNames",
    "contains",
    "x-kubernetes-unions",
    "additionalItems",
];

type Fields = Map<String, Value>;

impl<'r, 'a> SchemaReader<'r, 'a> {
    /// Creates a reader.
    pub(crate) fn new(resolve: Resolve<'r, 'a>, server: ServerRules) -> Self {
        Self {
            resolve,
            server,
            path: Vec::new(),
            properties: 0,
        }
    }

    /// Translates the schema of a kind or of a definition. Errors contain `name`.
    pub(crate) fn root(&mut self, name: &str, schema: &'a Value) -> Result<ModelObject, ModelError> {
        self.path = vec![name.to_owned()];
        let mut owner = ModelObject::default();
        let mut object = match self.value(schema, &mut owner)?.kind {
            ModelType::Object(object) => *object,
            ModelType::Map(values) => ModelObject {
                others: Some(values),
                ..ModelObject::default()
            },
            ModelType::Any => ModelObject {
                others: Some(Box::new(ModelValue::new(ModelType::Any))),
                ..ModelObject::default()
            },
            _ => return Err(self.form("the schema must describe an object")),
        };
        for (keyword, times) in owner.untranslated {
            object.leave_out(&keyword, times);
        }
        Ok(object)
    }

    fn place(&self) -> String {
        self.path.join(".")
    }

    fn form(&self, what: &'static str) -> ModelError {
        ModelError::Form {
            place: self.place(),
            what,
        }
    }

    /// Translates an object with its properties.
    fn object(&mut self, fields: &'a Fields) -> Result<ModelObject, ModelError> {
        let mut object = ModelObject {
            doc: text(fields, "description"),
            ..ModelObject::default()
        };
        let listed = |names: &'a Value| {
            names
                .as_array()
                .ok_or_else(|| self.form("`required` must be a list"))
        };
        let required = fields.get("required").map(listed).transpose()?;
        let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        let mapped = |given: &'a Value| {
            given
                .as_object()
                .ok_or_else(|| self.form("`properties` must be a mapping"))
        };
        let properties = fields.get("properties").map(mapped).transpose()?;
        let known = |name: &&str| properties.is_some_and(|known| known.contains_key(*name));
        let unknown = required.iter().filter(|name| !known(name)).count();
        if unknown > 0 {
            object.leave_out("required", count(unknown));
        }
        for (name, schema) in properties.into_iter().flatten() {
            self.properties += 1;
            if self.properties > MOST_PROPERTIES {
                return Err(ModelError::TooMany);
            }
            let property = self.property(name, schema, required.contains(&name.as_str()), &mut object)?;
            object.properties.push(property);
        }
        object.others = self.other_properties(fields, &mut object)?;
        for keyword in ["minProperties", "maxProperties"] {
            if fields.contains_key(keyword) {
                object.leave_out(keyword, 1);
            }
        }
        Ok(object)
    }

    fn property(
        &mut self,
        name: &str,
        schema: &'a Value,
        is_required: bool,
        owner: &mut ModelObject,
    ) -> Result<ModelProperty, ModelError> {
        let default = schema
            .get("default")
            .filter(|default| !is_zero(default, self.server));
        let presence = if is_required {
            if self.server == ServerRules::BuiltIn && !required::is_required(&self.path[0], name) {
                owner.leave_out("required", 1);
                Presence::Optional
            } else if default.is_some() && self.server == ServerRules::Custom {
                // The server sets the default before it validates, so the property may be absent.
                Presence::Optional
            } else if schema.get("nullable") == Some(&Value::Bool(true)) {
                Presence::RequiredOrNull
            } else {
                Presence::Required
            }
        } else {
            Presence::Optional
        };
        Ok(ModelProperty {
            name: name.to_owned(),
            doc: schema
                .as_object()
                .map(|fields| text(fields, "description"))
                .unwrap_or_default(),
            default: default.map(Value::to_string),
            presence,
            value: self.inside(name, schema, owner)?,
        })
    }

    /// Translates a nested schema. Errors contain `name`.
    fn inside(
        &mut self,
        name: &str,
        schema: &'a Value,
        owner: &mut ModelObject,
    ) -> Result<ModelValue, ModelError> {
        self.path.push(name.to_owned());
        if self.path.len() > MOST_LEVELS {
            return Err(ModelError::TooDeep(self.path[..4].join(".")));
        }
        let value = self.value(schema, owner);
        self.path.pop();
        value
    }

    fn value(&mut self, schema: &'a Value, owner: &mut ModelObject) -> Result<ModelValue, ModelError> {
        let fields = match schema {
            Value::Bool(true) => return Ok(ModelValue::new(ModelType::Any)),
            Value::Object(fields) => fields,
            _ => return Err(self.form("a schema must be a mapping")),
        };
        if let Some(target) = fields.get("$ref") {
            return self.reference(target, owner);
        }
        if let Some(parts) = fields.get("allOf").and_then(Value::as_array) {
            if let [only] = parts.as_slice()
                && !fields.contains_key("type")
                && !fields.contains_key("properties")
            {
                return self.inside("allOf", only, owner);
            }
            owner.leave_out("allOf", 1);
        }
        let kind = self.kind(fields, owner)?;
        self.leave_out_of_value(fields, &kind, owner);
        Ok(checked(kind, fields, owner, self.server))
    }

    fn reference(&mut self, target: &Value, owner: &mut ModelObject) -> Result<ModelValue, ModelError> {
        let target = target
            .as_str()
            .ok_or_else(|| self.form("`$ref` must be a string"))?;
        match (self.resolve)(target) {
            Some(ReferenceTarget::Named(kind)) => Ok(ModelValue::new(kind)),
            Some(ReferenceTarget::Inline(schema)) => self.inside("$ref", schema, owner),
            None => Err(ModelError::Reference {
                place: self.place(),
                target: target.to_owned(),
            }),
        }
    }

    fn kind(&mut self, fields: &'a Fields, owner: &mut ModelObject) -> Result<ModelType, ModelError> {
        if is_true(fields, "x-kubernetes-int-or-string")
            || fields.get("format").is_some_and(|f| f == "int-or-string")
        {
            return Ok(ModelType::Union(vec![ModelType::Int, ModelType::Str]));
        }
        if is_true(fields, "x-kubernetes-embedded-resource") {
            owner.leave_out("x-kubernetes-embedded-resource", 1);
            return Ok(ModelType::Map(Box::new(ModelValue::new(ModelType::Any))));
        }
        match fields.get("type") {
            Some(Value::String(name)) => self.typed(name, fields, owner),
            Some(Value::Array(names)) => {
                let mut kinds = Vec::new();
                for name in names
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|name| *name != "null")
                {
                    kinds.push(self.typed(name, fields, owner)?);
                }
                Ok(union(kinds))
            }
            Some(_) => Err(self.form("`type` must be a string")),
            None if fields.contains_key("properties") => self.typed("object", fields, owner),
            None => self.alternatives(fields, owner),
        }
    }

    fn typed(
        &mut self,
        name: &str,
        fields: &'a Fields,
        owner: &mut ModelObject,
    ) -> Result<ModelType, ModelError> {
        Ok(match name {
            "boolean" => ModelType::Bool,
            "integer" => ModelType::Int,
            "number" => ModelType::Float,
            "string" => string_literals(fields).map_or(ModelType::Str, ModelType::Literals),
            "array" => {
                let items = match fields.get("items") {
                    Some(items) => self.inside("[]", items, owner)?,
                    None => ModelValue::new(ModelType::Any),
                };
                ModelType::List(Box::new(items))
            }
            "object" => {
                let has_properties = fields
                    .get("properties")
                    .is_some_and(|known| known.as_object().is_none_or(|known| !known.is_empty()));
                if has_properties {
                    ModelType::Object(Box::new(self.object(fields)?))
                } else {
                    let values = self.other_properties(fields, owner)?;
                    let any = || Box::new(ModelValue::new(ModelType::Any));
                    let required = fields.get("required").and_then(Value::as_array);
                    if let Some(required) = required.filter(|required| !required.is_empty()) {
                        owner.leave_out("required", count(required.len()));
                    }
                    ModelType::Map(values.unwrap_or_else(any))
                }
            }
            _ => return Err(self.form("`type` is not a type of OpenAPI")),
        })
    }

    /// Translates a schema without a type: to a union of types, or to any value.
    fn alternatives(&mut self, fields: &'a Fields, owner: &mut ModelObject) -> Result<ModelType, ModelError> {
        for keyword in ["oneOf", "anyOf"] {
            let Some(parts) = fields.get(keyword).and_then(Value::as_array) else {
                continue;
            };
            let is_type = |part: &Value| part.get("type").is_some() || part.get("$ref").is_some();
            if parts.is_empty() || !parts.iter().all(is_type) {
                owner.leave_out(keyword, 1);
                return Ok(ModelType::Any);
            }
            let mut kinds = Vec::new();
            for part in parts {
                let value = self.inside(keyword, part, owner)?;
                if !value.checks.is_empty() {
                    owner.leave_out(keyword, 1);
                }
                kinds.push(value.kind);
            }
            return Ok(union(kinds));
        }
        Ok(match string_literals(fields) {
            Some(literals) => ModelType::Literals(literals),
            None => ModelType::Any,
        })
    }

    /// Translates the schema of properties that are not listed.
    fn other_properties(
        &mut self,
        fields: &'a Fields,
        owner: &mut ModelObject,
    ) -> Result<Option<Box<ModelValue>>, ModelError> {
        let any = || Some(Box::new(ModelValue::new(ModelType::Any)));
        if is_true(fields, "x-kubernetes-preserve-unknown-fields") {
            return Ok(any());
        }
        Ok(match fields.get("additionalProperties") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => any(),
            Some(schema) => Some(Box::new(self.inside("{}", schema, owner)?)),
        })
    }

    /// Counts the keywords that restrict a value and are not translated.
    fn leave_out_of_value(&self, fields: &Fields, kind: &ModelType, owner: &mut ModelObject) {
        for keyword in LEFT_OUT.iter().filter(|keyword| fields.contains_key(**keyword)) {
            owner.leave_out(keyword, 1);
        }
        if let Some(rules) = fields.get("x-kubernetes-validations").and_then(Value::as_array) {
            owner.leave_out("x-kubernetes-validations", count(rules.len()));
        }
        let is_text = matches!(kind, ModelType::Str | ModelType::Literals(_));
        if is_text && fields.contains_key("format") {
            owner.leave_out("format", 1);
        }
        let is_int_or_string = is_true(fields, "x-kubernetes-int-or-string");
        if fields.contains_key("type") || is_int_or_string || fields.contains_key("properties") {
            for keyword in ["oneOf", "anyOf"]
                .into_iter()
                .filter(|keyword| fields.contains_key(*keyword))
            {
                // Older documents write int-or-string as an `anyOf` of the two types, which is no restriction.
                if !(is_int_or_string && is_two_types(&fields[keyword])) {
                    owner.leave_out(keyword, 1);
                }
            }
        }
    }
}

fn count(keywords: usize) -> u32 {
    u32::try_from(keywords).unwrap_or(u32::MAX)
}

fn is_two_types(parts: &Value) -> bool {
    let only_type = |part: &Value| {
        part.as_object()
            .is_some_and(|fields| fields.len() == 1 && fields.contains_key("type"))
    };
    parts.as_array().is_some_and(|parts| parts.iter().all(only_type))
}

/// Returns true for a default without meaning: the OpenAPI documents of built-in kinds give many properties Go's
/// zero value as their default.
fn is_zero(value: &Value, server: ServerRules) -> bool {
    let is_empty = match value {
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    };
    value.is_null() || server == ServerRules::BuiltIn && is_empty
}

fn union(mut kinds: Vec<ModelType>) -> ModelType {
    let mut seen = Vec::new();
    kinds.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(kind.clone());
            true
        }
    });
    match kinds.len() {
        1 => kinds.remove(0),
        0 => ModelType::Any,
        _ if kinds.contains(&ModelType::Any) => ModelType::Any,
        _ => ModelType::Union(kinds),
    }
}
