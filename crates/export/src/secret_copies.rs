//! Finds copies of a Secret's data in other texts of a Spec: in a ConfigMap, an annotation, a variable, also in
//! base64. They must not be exported in clear text, because more people can read a chart or a branch than a Secret.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
};

use serde_json::{Map, Value};

use konverge_base::model::{
    FieldPath, GroupKind, ResourceId, masked_value,
    reference::MARK,
    spec::{Resource, RuntimeKind},
};
use konverge_secrets::{HashKey, SecretTemplate, Secrets, encode_base64, is_name_field, rewrite_texts};

use crate::value_places::{RequiredValue, ValueCode, ValueGroup, place_name};

/// The minimum length of a text that is searched for: short texts such as `true` and `8080` occur in many places by
/// chance.
const SHORTEST: usize = 6;

/// Keys whose values are free text. Elsewhere a plain word, such as `ClusterIP`, is an enum value that equals
/// the secret by chance.
const FREE_TEXTS: [&str; 4] = ["data", "stringData", "annotations", "value"];

/// Returns the data of Secrets in one object by path, decoded. Data that is not text becomes empty.
pub(crate) fn secret_data(body: &Map<String, Value>) -> BTreeMap<FieldPath, String> {
    let mut found = BTreeMap::new();
    if let Some(items) = items_of_list(body) {
        for (at, item) in items.into_iter().enumerate() {
            let inside = secret_data(&item).into_iter();
            found.extend(inside.map(|(path, text)| (format!("/items/{at}{path}").into(), text)));
        }
        return found;
    }
    let visited = rewrite_texts(&mut body.clone(), &mut |place, text| {
        let refers = || SecretTemplate::parse(text).ok().flatten().is_some();
        if place.is_secret || (!place.is_text && refers()) {
            found.insert(place.path.clone(), text.to_owned());
        }
        Ok::<_, Infallible>(None)
    });
    visited.unwrap_or_else(|never| match never {});
    found
}

/// Returns the objects of a list. The items of a `SecretList` may omit `apiVersion` and `kind`.
fn items_of_list(body: &Map<String, Value>) -> Option<Vec<Map<String, Value>>> {
    let GroupKind { group: "", kind } = GroupKind::from_attributes(body) else {
        return None;
    };
    let kind = kind.strip_suffix("List")?;
    let items = body.get("items")?.as_array()?.iter();
    let items = items.map(|item| {
        let mut item = item.as_object().cloned().unwrap_or_default();
        if !kind.is_empty() && !item.contains_key("kind") {
            item.insert("apiVersion".to_owned(), "v1".into());
            item.insert("kind".to_owned(), kind.into());
        }
        item
    });
    Some(items.collect())
}

/// A copy of a Secret's data in another text.
pub(crate) enum SecretCopy<'a> {
    /// The whole text is the data, plain or in base64.
    Whole(RequiredValue),
    /// A part of the text is the data of this Secret's location.
    Part(&'a str),
}

/// One text in a Secret.
struct SecretText {
    /// The resource and the path.
    name: String,
    clear: String,
}

/// The data of all Secrets of a Spec.
pub(crate) struct SecretCopies {
    texts: Vec<SecretText>,
    /// The texts that equal a Secret's data, with the conversion between the two.
    whole: HashMap<String, (usize, Option<ValueCode>)>,
    known: Secrets,
}

impl SecretCopies {
    /// Reads all Secrets of a Spec, also left out ones.
    pub(crate) fn find(resources: &[Resource]) -> Self {
        let known = Secrets::new(HashKey::random());
        known.learn_names(resources);
        let mut copies = Self {
            texts: Vec::new(),
            whole: HashMap::new(),
            known,
        };
        for resource in resources {
            if resource.runtime == RuntimeKind::Kubernetes {
                copies.add(&resource.id, &resource.attributes);
            }
        }
        copies
    }

    fn add(&mut self, id: &ResourceId, body: &Map<String, Value>) {
        let whole = Value::Object(body.clone());
        for (path, clear) in secret_data(body) {
            let is_reference = clear.contains(MARK) || SecretTemplate::parse(&clear).ok().flatten().is_some();
            if clear.len() < SHORTEST || is_reference {
                continue;
            }
            let is_encoded = whole.pointer(path.as_str()).and_then(Value::as_str) != Some(clear.as_str());
            let encoded = encode_base64(clear.as_bytes());
            let (of_clear, of_encoded) = if is_encoded {
                (Some(ValueCode::Decode), None)
            } else {
                (None, Some(ValueCode::Encode))
            };
            let at = self.texts.len();
            // Both the clear text and its base64 form are searched for, in all other texts.
            self.known.learn_value(&clear);
            self.whole.entry(clear.clone()).or_insert((at, of_clear));
            self.whole.entry(encoded).or_insert((at, of_encoded));
            self.texts.push(SecretText {
                name: place_name(id, &path),
                clear,
            });
        }
    }

    /// Finds a copy in the text at a path. Names of objects, references and selectors are never copies, because
    /// objects are found by them.
    pub(crate) fn in_text(&self, path: &FieldPath, text: &str) -> Option<SecretCopy<'_>> {
        if self.texts.is_empty() {
            return None;
        }
        // A short or common word is a copy only in a free text: elsewhere it equals the secret by chance.
        let is_hidden = self.known.hides(path, text);
        if let Some((at, code)) = self.whole.get(text)
            && !is_name_field(path)
            && (is_hidden || path.as_str().split('/').any(|key| FREE_TEXTS.contains(&key)))
        {
            let name = self.texts[*at].name.clone();
            return Some(SecretCopy::Whole(RequiredValue {
                code: *code,
                ..RequiredValue::new(ValueGroup::Secrets, name)
            }));
        }
        if !is_hidden {
            return None;
        }
        let is_it = |one: &&SecretText| {
            let alone = Secrets::new(HashKey::random());
            alone.learn_value(&one.clear);
            alone.hides(&FieldPath::root(), text)
        };
        let found = self.texts.iter().find(is_it);
        found.map(|found| SecretCopy::Part(found.name.as_str()))
    }

    /// Returns a copy of an object without data of Secrets, for the digest. Otherwise anybody with the digest could
    /// guess short secrets.
    pub(crate) fn without_data(&self, body: &Map<String, Value>) -> Map<String, Value> {
        let own = secret_data(body);
        let mut whole = Value::Object(body.clone());
        self.hide(&mut whole, &FieldPath::root(), &own);
        match whole {
            Value::Object(body) => body,
            _ => Map::new(),
        }
    }

    fn hide(&self, value: &mut Value, path: &FieldPath, own: &BTreeMap<FieldPath, String>) {
        match value {
            Value::String(text) => {
                let is_copy = || matches!(self.in_text(path, text), Some(SecretCopy::Whole(_)));
                if own.contains_key(path) && !text.is_empty() || is_copy() {
                    *value = masked_value::secret("");
                }
            }
            Value::Object(map) => {
                for (key, member) in map {
                    self.hide(member, &path.join(key), own);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.hide(item, &path.item(at), own);
                }
            }
            _ => {}
        }
    }
}
