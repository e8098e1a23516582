//! Copies of the data of Secrets in other texts of a Spec: a ConfigMap, an annotation, a variable, also in base64. They
//! must not be carried as they are, because a chart and a branch have other readers than a Secret.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
};

use serde_json::{Map, Value};

use konverge_base::model::{
    GroupKind, ResourceId,
    field_path::join_path,
    masked_value,
    reference::MARK,
    spec::{Resource, RuntimeKind},
};
use konverge_secrets::{HashKey, SecretTemplate, Secrets, encode_base64, is_name_field, rewrite_texts};

use crate::value_places::{RequiredValue, ValueCode, ValueGroup, place_name};

/// The length of the shortest text that is looked for: `true` and `8080` stand in many places.
const SHORTEST: usize = 6;

/// Maps whose values are free texts. Elsewhere a plain word, such as `ClusterIP`, means something else.
const FREE_TEXTS: [&str; 4] = ["data", "stringData", "annotations", "value"];

/// The data of Secrets in one object, decoded, by path. It is empty where it is not text.
pub(crate) fn secret_data(body: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(items) = items_of_list(body) {
        for (at, item) in items.into_iter().enumerate() {
            let inside = secret_data(&item).into_iter();
            found.extend(inside.map(|(path, text)| (format!("/items/{at}{path}"), text)));
        }
        return found;
    }
    let visited = rewrite_texts(&mut body.clone(), &mut |place, text| {
        let refers = || SecretTemplate::parse(text).ok().flatten().is_some();
        if place.is_secret || (!place.is_text && refers()) {
            found.insert(place.path.to_owned(), text.to_owned());
        }
        Ok::<_, Infallible>(None)
    });
    visited.unwrap_or_else(|never| match never {});
    found
}

/// The objects of a list. The items of a `SecretList` may leave out what they are.
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

/// A copy of data of a Secret in another text.
pub(crate) enum SecretCopy<'a> {
    /// The whole text is the data, or its form in base64.
    Whole(RequiredValue),
    /// The text holds the data of this name beside something else.
    Part(&'a str),
}

/// One text of a Secret.
struct SecretText {
    /// Its resource and its path.
    name: String,
    clear: String,
}

/// The data of all Secrets of a Spec.
pub(crate) struct SecretCopies {
    texts: Vec<SecretText>,
    /// The texts by what equals them, with what makes the one of the other.
    whole: HashMap<String, (usize, Option<ValueCode>)>,
    known: Secrets,
}

impl SecretCopies {
    /// Reads the Secrets of a Spec, also those that an export leaves out.
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
            let is_encoded = whole.pointer(&path).and_then(Value::as_str) != Some(clear.as_str());
            let encoded = encode_base64(clear.as_bytes());
            let (of_clear, of_encoded) = if is_encoded {
                (Some(ValueCode::Decode), None)
            } else {
                (None, Some(ValueCode::Encode))
            };
            let at = self.texts.len();
            self.known.learn_value(&clear);
            self.whole.entry(clear.clone()).or_insert((at, of_clear));
            self.whole.entry(encoded).or_insert((at, of_encoded));
            self.texts.push(SecretText {
                name: place_name(id, &path),
                clear,
            });
        }
    }

    /// The copy that a text at a path is or holds. The name of an object, a reference and a selector are none: objects
    /// are found by them.
    pub(crate) fn in_text(&self, path: &str, text: &str) -> Option<SecretCopy<'_>> {
        if self.texts.is_empty() {
            return None;
        }
        let is_hidden = self.known.hides(path, text);
        if let Some((at, code)) = self.whole.get(text)
            && !is_name_field(path)
            && (is_hidden || path.split('/').any(|key| FREE_TEXTS.contains(&key)))
        {
            return Some(SecretCopy::Whole(RequiredValue {
                group: ValueGroup::Secrets,
                name: self.texts[*at].name.clone(),
                target: None,
                code: *code,
            }));
        }
        if !is_hidden {
            return None;
        }
        let is_it = |one: &&SecretText| {
            let alone = Secrets::new(HashKey::random());
            alone.learn_value(&one.clear);
            alone.hides("", text)
        };
        let found = self.texts.iter().find(is_it);
        found.map(|found| SecretCopy::Part(found.name.as_str()))
    }

    /// A copy of an object whose digest tells nothing about the data of Secrets: a reader of the digest could try out short
    /// values.
    pub(crate) fn without_data(&self, body: &Map<String, Value>) -> Map<String, Value> {
        let own = secret_data(body);
        let mut whole = Value::Object(body.clone());
        self.hide(&mut whole, "", &own);
        match whole {
            Value::Object(body) => body,
            _ => Map::new(),
        }
    }

    fn hide(&self, value: &mut Value, path: &str, own: &BTreeMap<String, String>) {
        match value {
            Value::String(text) => {
                let is_copy = || matches!(self.in_text(path, text), Some(SecretCopy::Whole(_)));
                if own.contains_key(path) && !text.is_empty() || is_copy() {
                    *value = masked_value::secret("");
                }
            }
            Value::Object(map) => {
                for (key, member) in map {
                    self.hide(member, &join_path(path, key), own);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.hide(item, &format!("{path}/{at}"), own);
                }
            }
            _ => {}
        }
    }
}
