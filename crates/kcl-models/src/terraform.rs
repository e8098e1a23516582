//! Reads provider schemas: the output of `terraform providers schema -json`.

use serde_json::{Map, Value};

use crate::{
    error::{MOST_LEVELS, MOST_PROPERTIES, ModelError},
    json_checks::{is_true, text},
    names::{package_segment, schema_name},
    schema::{
        ModelObject, ModelProperty, ModelRoot, ModelType, ModelValue, PackageName, Presence, SchemaName,
        ValueCheck,
    },
};

type Fields = Map<String, Value>;

/// Reads the resources of all providers in a document. `--only` selects them by their type, such as
/// `aws_s3_bucket`. Attributes that only the provider sets are left out, because a stack cannot set them.
///
/// # Errors
/// No provider, or a schema of another form.
pub fn read_terraform(document: &Value) -> Result<Vec<ModelRoot>, ModelError> {
    let providers = document.get("provider_schemas").and_then(Value::as_object);
    let providers = providers.ok_or(ModelError::Nothing("provider schema"))?;
    let mut roots = Vec::new();
    let mut count = 0;
    for (address, provider) in providers {
        let name = address.rsplit('/').next().unwrap_or_default();
        let package = PackageName(vec![package_segment(name)]);
        for (kind, schema) in members(provider.get("resource_schemas")) {
            let block = schema.get("block").and_then(Value::as_object);
            let block = block.ok_or_else(|| form(kind, "a resource must have a `block`"))?;
            let mut reader = BlockReader {
                place: vec![kind.clone()],
                count,
            };
            let object = reader.block(block)?;
            count = reader.count;
            let short = kind
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('_'))
                .unwrap_or(kind);
            roots.push(ModelRoot {
                name: SchemaName {
                    package: package.clone(),
                    name: schema_name(short),
                },
                kind: Some(kind.clone()),
                title: format!("{kind} of {address}"),
                object,
            });
        }
    }
    if roots.is_empty() {
        Err(ModelError::Nothing("resource of a provider"))
    } else {
        Ok(roots)
    }
}

fn form(place: &str, what: &'static str) -> ModelError {
    ModelError::Form {
        place: place.to_owned(),
        what,
    }
}

/// Translates the blocks of one resource.
struct BlockReader {
    place: Vec<String>,
    count: usize,
}

impl BlockReader {
    fn form(&self, what: &'static str) -> ModelError {
        form(&self.place.join("."), what)
    }

    fn enter(&mut self, name: &str) -> Result<(), ModelError> {
        self.place.push(name.to_owned());
        self.count += 1;
        match (self.place.len() > MOST_LEVELS, self.count > MOST_PROPERTIES) {
            (true, _) => Err(ModelError::TooDeep(self.place[..4].join("."))),
            (_, true) => Err(ModelError::TooMany),
            _ => Ok(()),
        }
    }

    fn block(&mut self, block: &Fields) -> Result<ModelObject, ModelError> {
        let mut object = ModelObject {
            doc: text(block, "description"),
            ..ModelObject::default()
        };
        self.attributes(block.get("attributes"), &mut object)?;
        for (name, nested) in members(block.get("block_types")) {
            self.enter(name)?;
            let property = self.nested_block(name, nested, &mut object)?;
            object.properties.push(property);
            self.place.pop();
        }
        Ok(object)
    }

    fn attributes(&mut self, attributes: Option<&Value>, object: &mut ModelObject) -> Result<(), ModelError> {
        for (name, attribute) in members(attributes) {
            self.enter(name)?;
            let fields = attribute
                .as_object()
                .ok_or_else(|| self.form("an attribute must be a mapping"))?;
            let is = |keyword: &str| is_true(fields, keyword);
            // An attribute that is only `computed` is set by the provider.
            if is("required") || is("optional") {
                let kind = self.attribute_type(fields, object)?;
                object.properties.push(ModelProperty {
                    doc: doc(fields),
                    presence: presence(is("required")),
                    ..ModelProperty::optional(name, kind)
                });
            }
            self.place.pop();
        }
        Ok(())
    }

    fn attribute_type(&mut self, fields: &Fields, object: &mut ModelObject) -> Result<ModelType, ModelError> {
        let Some(nested) = fields.get("nested_type") else {
            let given = fields
                .get("type")
                .ok_or_else(|| self.form("an attribute must have a `type`"))?;
            return self.value_type(given, object);
        };
        let nested = nested
            .as_object()
            .ok_or_else(|| self.form("`nested_type` must be a mapping"))?;
        let mut inner = ModelObject::default();
        self.attributes(nested.get("attributes"), &mut inner)?;
        let inner = ModelType::Object(Box::new(inner));
        let kind = self.nesting(nested, inner)?;
        Ok(or_text(kind))
    }

    /// Translates the type of an attribute. A string is allowed for every type, because a reference to another
    /// resource is a string. Terraform also converts numbers and booleans from and to strings.
    fn value_type(&self, given: &Value, object: &mut ModelObject) -> Result<ModelType, ModelError> {
        let wrong = || self.form("`type` is not a type of Terraform");
        Ok(match given {
            Value::String(name) => match name.as_str() {
                "string" => ModelType::Union(vec![ModelType::Str, ModelType::Float, ModelType::Bool]),
                "number" => or_text(ModelType::Float),
                "bool" => or_text(ModelType::Bool),
                "dynamic" => ModelType::Any,
                _ => return Err(wrong()),
            },
            Value::Array(parts) => {
                let name = parts.first().and_then(Value::as_str).ok_or_else(wrong)?;
                let mut item = |parts: &[Value]| -> Result<Box<ModelValue>, ModelError> {
                    let item = parts.get(1).ok_or_else(wrong)?;
                    Ok(Box::new(ModelValue::new(self.value_type(item, object)?)))
                };
                match name {
                    "list" | "set" => or_text(ModelType::List(item(parts)?)),
                    "map" => or_text(ModelType::Map(item(parts)?)),
                    // Terraform converts the attributes of an object and drops unknown ones, so nothing can be
                    // checked.
                    "object" => {
                        object.leave_out("object", 1);
                        or_text(ModelType::Map(Box::new(ModelValue::new(ModelType::Any))))
                    }
                    "tuple" => {
                        object.leave_out("tuple", 1);
                        or_text(ModelType::List(Box::new(ModelValue::new(ModelType::Any))))
                    }
                    _ => return Err(wrong()),
                }
            }
            _ => return Err(wrong()),
        })
    }

    fn nested_block(
        &mut self,
        name: &str,
        nested: &Value,
        owner: &mut ModelObject,
    ) -> Result<ModelProperty, ModelError> {
        let fields = nested
            .as_object()
            .ok_or_else(|| self.form("a block must be a mapping"))?;
        let block = fields.get("block").and_then(Value::as_object);
        let block = block.ok_or_else(|| self.form("a nested block must have a `block`"))?;
        let inner = self.block(block)?;
        let doc = inner.doc.clone();
        let single = ModelType::Object(Box::new(inner));
        let count = |keyword: &str| {
            fields
                .get(keyword)
                .and_then(Value::as_u64)
                .filter(|count| *count > 0)
        };
        let (least, most) = (count("min_items"), count("max_items"));
        let mut value = ModelValue::new(self.nesting(fields, single.clone())?);
        if let ModelType::List(_) = value.kind {
            let limits = [
                least.filter(|least| *least > 1).map(ValueCheck::MinItems),
                most.map(ValueCheck::MaxItems),
            ];
            match most {
                // A single block may be written as a list or alone, so the number of blocks cannot be checked.
                Some(1) => {
                    owner.leave_out("max_items", 1);
                    value.kind = ModelType::Union(vec![value.kind, single]);
                }
                _ => value.checks.extend(limits.into_iter().flatten()),
            }
        }
        Ok(ModelProperty {
            doc,
            presence: presence(least.is_some()),
            value,
            ..ModelProperty::optional(name, ModelType::Any)
        })
    }

    fn nesting(&self, fields: &Fields, inner: ModelType) -> Result<ModelType, ModelError> {
        let inner = || Box::new(ModelValue::new(inner.clone()));
        match fields.get("nesting_mode").and_then(Value::as_str) {
            Some("list" | "set") => Ok(ModelType::List(inner())),
            Some("map") => Ok(ModelType::Map(inner())),
            Some("single" | "group") => Ok(inner().kind),
            _ => Err(self.form("`nesting_mode` must be single, group, list, set or map")),
        }
    }
}

/// Returns the members of a mapping; none for another value.
fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn presence(is_required: bool) -> Presence {
    if is_required {
        Presence::Required
    } else {
        Presence::Optional
    }
}

fn or_text(kind: ModelType) -> ModelType {
    ModelType::Union(vec![kind, ModelType::Str])
}

/// Returns the description, with further facts about the attribute.
fn doc(fields: &Fields) -> String {
    let mut doc = text(fields, "description");
    for (keyword, about) in [
        ("deprecated", "Deprecated."),
        ("sensitive", "Sensitive: give it by a reference to a secret."),
        ("write_only", "Write-only: the state does not keep it."),
        ("computed", "The provider sets it if it is absent."),
    ] {
        if is_true(fields, keyword) {
            doc.push('\n');
            doc.push_str(about);
        }
    }
    doc
}
