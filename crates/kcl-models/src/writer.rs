//! Writes schemas as KCL, in the layout of KCL's formatter.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checks::{self, REGEX},
    docs,
    names::{AttributeName, attribute_name, literal_type, quoted},
    schema::{ModelObject, ModelProperty, ModelType, ModelValue, PackageName, Presence},
};

/// The names of types in a package.
pub(crate) struct TypeNames<'a> {
    /// The package of the file.
    pub(crate) package: &'a PackageName,
    /// The names of the nameless objects, by number.
    pub(crate) shared: &'a [String],
}

/// A schema as KCL, and what its file needs.
pub(crate) struct WrittenSchema {
    /// The text, with a line break at the end.
    pub(crate) text: String,
    /// True if the schema uses the module `regex`.
    pub(crate) uses_regex: bool,
    /// The number of untranslated keywords, by keyword.
    pub(crate) untranslated: BTreeMap<String, u32>,
}

/// Returns the alias under which a file imports a package.
pub(crate) fn alias(package: &PackageName) -> String {
    package.0.join("_")
}

/// Writes a schema.
pub(crate) fn write_schema(name: &str, object: &ModelObject, names: &TypeNames<'_>) -> WrittenSchema {
    let mut untranslated = object.untranslated.clone();
    let mut leave_out = |keyword: &str| *untranslated.entry(keyword.to_owned()).or_default() += 1;
    let open = object
        .others
        .as_ref()
        .map(|others| type_text(&others.kind, names));
    // A check calls functions such as `len`. An attribute with the same name would shadow the function, so such a
    // check is left out and counted.
    let identifiers = object
        .properties
        .iter()
        .filter_map(|property| match attribute_name(&property.name) {
            AttributeName::Identifier(name) => Some(name.trim_start_matches('$').to_owned()),
            _ => None,
        });
    let identifiers: BTreeSet<String> = identifiers.collect();
    let (mut attributes, mut conditions, mut described) = (String::new(), String::new(), Vec::new());
    let mut uses_regex = false;
    for property in &object.properties {
        let (attribute, can_check) = match attribute_name(&property.name) {
            AttributeName::Identifier(name) => (name, true),
            AttributeName::Quoted(name) => (name, false),
            AttributeName::Impossible => {
                leave_out("property that KCL cannot name");
                continue;
            }
        };
        let kind = type_text(&property.value.kind, names);
        attributes.push_str(&match &property.presence {
            Presence::Required => format!("    {attribute}: {kind}\n"),
            Presence::Fixed(value) => {
                let value = quoted(value).unwrap_or_else(|| "\"\"".to_owned());
                format!("    {attribute}: {value} = {value}\n")
            }
            Presence::Optional | Presence::RequiredOrNull => format!("    {attribute}?: {kind}\n"),
        });
        described.extend(description(property, &attribute, &kind));
        // A required attribute of KCL rejects null. So a property that must be present but may be null is optional,
        // and a check requires its presence.
        if property.presence == Presence::RequiredOrNull {
            if can_check {
                conditions.push_str(&format!(
                    "        {attribute} != Undefined, \"{} is required\"\n",
                    property.name
                ))
            } else {
                leave_out("required")
            }
        }
        for line in checks::lines(&attribute, &property.value) {
            let is_hidden = line.uses.iter().any(|name| identifiers.contains(*name));
            let written = checks::write(&line, &attribute, &property.presence);
            match written.filter(|_| can_check && !is_hidden) {
                Some(text) => {
                    uses_regex |= line.uses.contains(REGEX);
                    conditions.push_str(&format!("        {text}\n"));
                }
                None if can_check => leave_out("check beside a property called like a function"),
                None => leave_out("check of a quoted name"),
            }
        }
    }
    let mut text = format!("schema {name}:\n");
    let is_empty = attributes.is_empty() && open.is_none();
    text.push_str(&docstring(&object.doc, &described, is_empty));
    if let Some(kind) = open {
        text.push_str(&format!("    [...str]: {kind}\n"));
    }
    text.push_str(&attributes);
    if !conditions.is_empty() {
        text.push_str(&format!("\n    check:\n{conditions}"));
    }
    WrittenSchema {
        text,
        uses_regex,
        untranslated,
    }
}

/// Returns the type in KCL.
fn type_text(kind: &ModelType, names: &TypeNames<'_>) -> String {
    let inner = |value: &ModelValue| type_text(&value.kind, names);
    match kind {
        ModelType::Any => "any".to_owned(),
        ModelType::Bool => "bool".to_owned(),
        ModelType::Int => "int".to_owned(),
        ModelType::Float => "float".to_owned(),
        ModelType::Str => "str".to_owned(),
        ModelType::Literals(values) => {
            let values: Vec<_> = values.iter().filter_map(|value| literal_type(value)).collect();
            values.join(" | ")
        }
        ModelType::List(items) => format!("[{}]", inner(items)),
        ModelType::Map(values) => format!("{{str:{}}}", inner(values)),
        ModelType::Shared(number) => names.shared[*number].clone(),
        ModelType::Schema(name) if name.package == *names.package => name.name.clone(),
        ModelType::Schema(name) => format!("{}.{}", alias(&name.package), name.name),
        ModelType::Union(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(|kind| type_text(kind, names)).collect();
            kinds.join(" | ")
        }
        // By now every object has a number, so this does not occur.
        ModelType::Object(_) => "{str:any}".to_owned(),
    }
}

/// Returns the lines about a property in the docstring.
fn description(property: &ModelProperty, attribute: &str, kind: &str) -> Vec<String> {
    let mut about = docs::lines(&property.doc);
    if let Some(default) = &property.default {
        about.push(format!("Default: {}", docs::line(default)));
    }
    if about.is_empty() {
        return Vec::new();
    }
    let presence = match property.presence {
        Presence::Optional => ", optional",
        _ => ", required",
    };
    let head = docs::line(&format!("{attribute} : {kind}{presence}"));
    let about = about.iter().map(|line| format!("    {line}"));
    std::iter::once(head).chain(about).collect()
}

fn docstring(doc: &str, described: &[String], is_needed: bool) -> String {
    let mut lines = docs::lines(doc);
    if lines.is_empty() && is_needed {
        lines.push("It has no property that can be set.".to_owned());
    }
    if !described.is_empty() {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(["Attributes".to_owned(), "----------".to_owned()]);
        lines.extend(described.iter().cloned());
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().map(|line| {
        if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("    {line}\n")
        }
    });
    let lines: String = lines.collect();
    format!("    r\"\"\"\n{lines}    \"\"\"\n")
}
