//! Finds values that a Spec does not contain or that must not be exported: references that only an apply can
//! resolve, references to secret stores, and data of Secrets. Each location gets a token, which a chart replaces with
//! the user's value.

use std::{
    collections::{BTreeSet, HashMap},
    io::Write as _,
};

use flate2::{Compression, write::DeflateEncoder};
use serde_json::{Map, Value, json};

use konverge_base::model::{
    Digest, FieldPath, GroupKind, ResourceId, masked_value,
    reference::{MARK, Reference, Targets},
    resolve::KnownValue,
};
use konverge_secrets::{SecretTemplate, TemplatePart, is_last_applied};

use crate::{
    error::{ExportRefusal, Why},
    secret_copies::{SecretCopies, SecretCopy, secret_data},
    value_places::{RequiredValue, ValueGroup, ValuePart, ValuePlace, place_name},
};

/// Finds the values in one object after the other; dependencies must come first.
pub(crate) struct ValueFinder {
    targets: Targets,
    digest: String,
    count: usize,
    /// The objects so far, with a marker in place of unknown values.
    known: HashMap<ResourceId, Value>,
    copies: SecretCopies,
    /// The locations, in the form of [`place_name`], that may contain copies in clear text.
    in_clear: BTreeSet<String>,
}

/// An object with tokens in place of unknown values.
pub(crate) struct FilledObject {
    pub(crate) body: Map<String, Value>,
    pub(crate) places: Vec<ValuePlace>,
    /// The paths of copies of a Secret's data that are exported in clear text.
    pub(crate) in_clear: Vec<FieldPath>,
}

impl ValueFinder {
    pub(crate) fn new<'a>(
        ids: impl Iterator<Item = &'a ResourceId>,
        digest: &Digest,
        copies: SecretCopies,
        in_clear: &[String],
    ) -> Self {
        Self {
            copies,
            in_clear: in_clear.iter().cloned().collect(),
            targets: ids.collect(),
            digest: digest.to_string()[..32].to_owned(),
            count: 0,
            known: HashMap::new(),
        }
    }

    /// Resolves the references of an object, and replaces unknown values with tokens.
    pub(crate) fn fill(
        &mut self,
        id: &ResourceId,
        body: Map<String, Value>,
    ) -> Result<FilledObject, Vec<ExportRefusal>> {
        let mut refusals: Vec<Why> = copies_and_numbers(&body);
        let mut secret = secret_data(&body);
        let mut texts = Vec::new();
        gather_texts(&body, &FieldPath::root(), &mut texts);
        let mut whole = Value::Object(body);
        let mut places = Vec::new();
        for (path, text) in texts {
            let mut compressed = 0;
            let parts = match secret.remove(&path) {
                Some(_) if text.is_empty() => continue,
                Some(_) => {
                    compressed = compressed_size(&text);
                    let name = place_name(id, &path);
                    vec![ValuePart::Value(RequiredValue::new(ValueGroup::Secrets, name))]
                }
                _ if !text.contains(MARK) && !text.contains("ref") => continue,
                _ => match self.parts(&text) {
                    Ok(Filled::Value(value)) => {
                        set(&mut whole, &path, value);
                        continue;
                    }
                    Ok(Filled::Parts(parts)) => parts,
                    Err(why) => {
                        refusals.push(Why::Reference(format!(
                            "at `{}`: {why}",
                            path.as_str().escape_debug()
                        )));
                        continue;
                    }
                },
            };
            places.push(self.place(path, parts, compressed));
        }
        let mut in_clear = Vec::new();
        for (path, text) in texts_beside(&whole, &places) {
            match self.copies.in_text(&path, &text) {
                None => {}
                Some(_) if self.in_clear.contains(&place_name(id, &path)) => in_clear.push(path),
                Some(SecretCopy::Part(of)) => refusals.push(Why::SecretCopy(path, of.to_owned())),
                Some(SecretCopy::Whole(value)) => {
                    let compressed = compressed_size(&text);
                    places.push(self.place(path, vec![ValuePart::Value(value)], compressed));
                }
            }
        }
        // Later objects resolve their references against `known`, with a marker for unknown values. The exported
        // object has tokens there.
        let mut known = whole.clone();
        for place in &places {
            set(&mut known, &place.path, masked_value::unknown());
            set(&mut whole, &place.path, Value::String(place.token.clone()));
        }
        self.known.insert(id.clone(), known);
        if !refusals.is_empty() {
            let refusals = refusals
                .into_iter()
                .map(|why| ExportRefusal { id: id.clone(), why });
            return Err(refusals.collect());
        }
        let Value::Object(body) = whole else {
            unreachable!("it was made of a map");
        };
        Ok(FilledObject {
            body,
            places,
            in_clear,
        })
    }

    fn place(&mut self, path: FieldPath, parts: Vec<ValuePart>, compressed: usize) -> ValuePlace {
        let token = format!("konverge-value-{}-{}", self.count, self.digest);
        self.count += 1;
        ValuePlace {
            path,
            token,
            parts,
            compressed,
        }
    }

    /// Resolves a text to a value, or to its parts if one of them is unknown.
    fn parts(&self, text: &str) -> Result<Filled, String> {
        let references = self.targets.scan(text).map_err(|error| error.to_string())?;
        // A text that is nothing but one reference gets the type of the value. Otherwise values become parts of the
        // text.
        if let [only] = references.as_slice()
            && only.place == (0..text.len())
        {
            let value = self.resolve(text, only)?;
            return Ok(if masked_value::is_unknown(&value) {
                Filled::Parts(vec![ValuePart::Value(reference_value(text, only))])
            } else {
                Filled::Value(value)
            });
        }
        let mut parts = Vec::new();
        let mut at = 0;
        for reference in &references {
            secret_parts(&text[at..reference.place.start], &mut parts)?;
            at = reference.place.end;
            match self.resolve(text, reference)? {
                value if masked_value::is_unknown(&value) => {
                    parts.push(ValuePart::Value(reference_value(text, reference)));
                }
                Value::String(text) => parts.push(ValuePart::Text(text)),
                value @ (Value::Number(_) | Value::Bool(_)) => parts.push(ValuePart::Text(value.to_string())),
                _ => {
                    let path = reference.path.join(".");
                    return Err(format!(
                        "the value of `{}` at `{path}` cannot be part of a longer string",
                        reference.target
                    ));
                }
            }
        }
        secret_parts(&text[at..], &mut parts)?;
        let is_text = |part: &ValuePart| matches!(part, ValuePart::Text(_));
        if !parts.iter().all(is_text) {
            return Ok(Filled::Parts(parts));
        }
        let texts = parts.into_iter().map(|part| match part {
            ValuePart::Text(text) => text,
            ValuePart::Value(_) => String::new(),
        });
        Ok(Filled::Value(Value::String(texts.collect())))
    }

    /// Returns the value of a reference, or the marker for unknown values.
    fn resolve(&self, text: &str, reference: &Reference) -> Result<Value, String> {
        let one = Map::from_iter([("x".to_owned(), Value::from(&text[reference.place.clone()]))]);
        let lookup = |id: &ResourceId| {
            self.known
                .get(id)
                .map_or(KnownValue::Nothing, KnownValue::Expected)
        };
        let mut resolved = self
            .targets
            .resolve(&one, &|_| false, &lookup)
            .map_err(|error| error.to_string())?;
        Ok(resolved.remove("x").unwrap_or_else(masked_value::unknown))
    }
}

enum Filled {
    Value(Value),
    Parts(Vec<ValuePart>),
}

/// Returns the texts that no token replaces.
fn texts_beside(whole: &Value, places: &[ValuePlace]) -> Vec<(FieldPath, String)> {
    let mut texts = Vec::new();
    gather_value(whole, FieldPath::root(), &mut texts);
    texts.retain(|(path, _)| places.iter().all(|place| place.path != *path));
    texts
}

fn reference_value(text: &str, reference: &Reference) -> RequiredValue {
    let name = text[reference.place.clone()].trim_start_matches(MARK).to_owned();
    RequiredValue {
        target: Some((reference.target.clone(), reference.path.clone())),
        ..RequiredValue::new(ValueGroup::References, name)
    }
}

/// Returns the compressed size of a text as JSON.
fn compressed_size(text: &str) -> usize {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder
        .write_all(Value::from(text).to_string().as_bytes())
        .and_then(|()| encoder.finish());
    compressed.expect("memory takes every write").len()
}

/// Splits a text without references to other resources into its parts.
fn secret_parts(text: &str, parts: &mut Vec<ValuePart>) -> Result<(), String> {
    let Some(template) = SecretTemplate::parse(text).map_err(|error| error.to_string())? else {
        if !text.is_empty() {
            parts.push(ValuePart::Text(text.to_owned()));
        }
        return Ok(());
    };
    parts.extend(template.parts.into_iter().map(|part| match part {
        TemplatePart::Text(text) => ValuePart::Text(text),
        TemplatePart::Reference(reference) => {
            ValuePart::Value(RequiredValue::new(ValueGroup::References, reference.to_string()))
        }
    }));
    Ok(())
}

/// Returns true if an object contains data of a Secret.
pub(crate) fn holds_secret_data(body: &Map<String, Value>) -> bool {
    let mut texts = Vec::new();
    gather_texts(body, &FieldPath::root(), &mut texts);
    let secret = secret_data(body);
    texts
        .iter()
        .any(|(path, text)| !text.is_empty() && secret.contains_key(path))
}

/// Returns refusals for annotations that copy the whole object with its secrets, and for values of a Secret that
/// are not text.
fn copies_and_numbers(body: &Map<String, Value>) -> Vec<Why> {
    let mut found = Vec::new();
    let annotations = body
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    for name in annotations
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
    {
        if is_last_applied(name) {
            found.push(Why::Annotation(name.clone()));
        }
    }
    if GroupKind::from_attributes(body) == GroupKind::SECRET {
        for part in ["data", "stringData"] {
            let values = body.get(part).and_then(Value::as_object).into_iter().flatten();
            let other = values.filter(|(_, value)| !(value.is_string() || value.is_null()));
            found.extend(other.map(|(key, _)| Why::NotText(FieldPath::from_components([part, key]))));
        }
    }
    found
}

fn gather_texts(map: &Map<String, Value>, path: &FieldPath, texts: &mut Vec<(FieldPath, String)>) {
    for (key, value) in map {
        gather_value(value, path.join(key), texts);
    }
}

fn gather_value(value: &Value, path: FieldPath, texts: &mut Vec<(FieldPath, String)>) {
    match value {
        Value::String(text) => texts.push((path, text.clone())),
        Value::Object(map) => gather_texts(map, &path, texts),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                gather_value(item, path.item(at), texts);
            }
        }
        _ => {}
    }
}

fn set(whole: &mut Value, path: &FieldPath, value: Value) {
    if let Some(place) = whole.pointer_mut(path.as_str()) {
        *place = value;
    }
}

/// Returns the `values.yaml` of a chart: all values are empty, and all are required.
pub(crate) fn empty_values<'a>(places: impl Iterator<Item = &'a ValuePlace>) -> Map<String, Value> {
    let mut values = Map::new();
    for value in places.flat_map(ValuePlace::values) {
        let group = values.entry(value.group.key()).or_insert_with(|| json!({}));
        if let Some(group) = group.as_object_mut() {
            group.insert(value.name.clone(), "".into());
        }
    }
    values
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
