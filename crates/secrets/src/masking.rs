//! Masks the secret values of a resource: each is replaced by a marker with a keyed hash, or with the secret reference
//! that the value is.

use std::{borrow::Cow, cell::RefCell, collections::HashMap};

use serde_json::{Map, Value};

use super::{
    Secrets, WrittenReferences, encodings,
    reference_mark::reference_mark,
    secret_names::{self, NameClass},
    secret_paths::{
        as_secret, decode, is_last_applied, is_object_name, items_of_secrets, place_of, says_what_it_is,
    },
    secret_places::SecretPlaces,
    token_patterns,
};
use konverge_base::model::{
    GroupKind, masked_value,
    spec::{Resource, RuntimeKind},
};

/// The maximum size of a text that is parsed as a document.
const LARGEST_DOCUMENT: usize = 1 << 20;

/// The keys that contain the value of a Terraform resource whose whole content is secret.
const CONTENTS: [&str; 7] = [
    "data",
    "data_json",
    "binary_data",
    "value",
    "plaintext_value",
    "content",
    "content_base64",
];

/// The Terraform types whose values are sensitive although their names do not say so.
const SENSITIVE_TYPES: [&str; 5] = [
    "aws_ssm_parameter",
    "tfe_variable",
    "gitlab_project_variable",
    "gitlab_group_variable",
    "gitlab_instance_variable",
];

/// Masks the secret values of a Kubernetes object: `data` and `stringData` of a Secret, also inside a list or another
/// object, the last-applied annotation, and values that are secret by their names. A value in `stringData` and the same
/// value in base64 in `data` get the same hash. An object without secret values is not copied.
#[must_use]
pub fn mask_object<'a>(secrets: &Secrets, object: &'a Map<String, Value>) -> Cow<'a, Map<String, Value>> {
    Marker::new(secrets, RuntimeKind::Kubernetes).map(object)
}

/// Masks an object like [`mask_object`], and also the fields outside of a Secret that contain secret values (`into:
/// any`).
#[must_use]
pub fn mask_object_at<'a>(
    secrets: &Secrets,
    object: &'a Map<String, Value>,
    places: &SecretPlaces,
) -> Cow<'a, Map<String, Value>> {
    places.mark(secrets, object, mask_object(secrets, object))
}

/// Masks the body of a Terraform resource of a type, or a provider configuration, like [`mask_object`].
#[must_use]
pub fn mask_terraform<'a>(
    secrets: &Secrets,
    kind: &str,
    body: &'a Map<String, Value>,
) -> Cow<'a, Map<String, Value>> {
    let masked = Marker::new(secrets, RuntimeKind::Terraform).map(body);
    mask_contents(secrets, kind, masked)
}

/// Masks the content of a Terraform resource whose whole content is secret.
fn mask_contents<'a>(
    secrets: &Secrets,
    kind: &str,
    body: Cow<'a, Map<String, Value>>,
) -> Cow<'a, Map<String, Value>> {
    let is_secret = kind.split('_').any(|word| matches!(word, "secret" | "sensitive"));
    if !is_secret && !SENSITIVE_TYPES.contains(&kind) {
        return body;
    }
    let mut masked = body.into_owned();
    for (key, value) in masked
        .iter_mut()
        .filter(|(key, _)| CONTENTS.contains(&key.as_str()))
    {
        *value = mask_place(secrets, key, value);
    }
    Cow::Owned(masked)
}

/// Masks everything below a key that is secret by its shape. The keys stay.
fn mask_place(secrets: &Secrets, key: &str, value: &Value) -> Value {
    match value {
        _ if masked_value::is_opaque(value) => value.clone(),
        Value::Object(map) => {
            let members = map
                .iter()
                .map(|(name, member)| (name.clone(), mask_place(secrets, key, member)));
            Value::Object(members.collect())
        }
        Value::Array(items) => items.iter().map(|item| mask_place(secrets, key, item)).collect(),
        // The decoded text is hashed, so that the same secret has the same hash in `data` and in `stringData`.
        Value::String(text) if key == "data" => mask_text(secrets, decode(text).as_ref().unwrap_or(text)),
        Value::String(text) => mask_text(secrets, text),
        Value::Null => Value::Null,
        other => secrets.mark(other),
    }
}

/// Masks a text as a reference to a secret, or else as a secret.
fn mask_text(secrets: &Secrets, text: &str) -> Value {
    reference_mark(secrets, text).unwrap_or_else(|| secrets.mark(&Value::from(text)))
}

/// Masks an object for policy sets: only the data of a Secret and the fields with values of a secret store. Names and
/// values do not decide, because a pull request chooses both.
#[must_use]
pub fn mask_secret_data_at<'a>(
    secrets: &Secrets,
    object: &'a Map<String, Value>,
    places: &SecretPlaces,
) -> Cow<'a, Map<String, Value>> {
    let mut masked = Cow::Borrowed(object);
    if GroupKind::from_attributes(object) == GroupKind::SECRET {
        for key in ["data", "stringData"] {
            if let Some(value) = object.get(key) {
                let marked = mask_place(secrets, key, value);
                masked.to_mut().insert(key.to_owned(), marked);
            }
        }
        // `kubectl`'s last-applied annotation contains the data a second time.
        let annotations = object
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations"));
        for (name, text) in annotations.and_then(Value::as_object).into_iter().flatten() {
            if is_last_applied(name) {
                let whole = masked.to_mut();
                whole["metadata"]["annotations"][name] = mask_place(secrets, name, text);
            }
        }
    }
    places.mark(secrets, object, masked)
}

/// Masks a resource for policy sets. Unlike [`mask_resource`] it masks only the data of Secrets and the content of
/// Terraform resources whose whole content is secret.
#[must_use]
pub fn mask_secret_data(secrets: &Secrets, resource: &Resource) -> Resource {
    let attributes = &resource.attributes;
    let masked = match resource.runtime {
        RuntimeKind::Kubernetes => {
            let places = SecretPlaces::find(Some(attributes), &WrittenReferences::new());
            mask_secret_data_at(secrets, attributes, &places)
        }
        RuntimeKind::Terraform => mask_contents(secrets, type_of(resource), Cow::Borrowed(attributes)),
    };
    resource.with(masked.into_owned())
}

/// Returns the texts in a value for policy sets that are masked wherever else they are shown: values that are secret by
/// their names, and secrets inside a text.
#[must_use]
pub fn hidden_texts(secrets: &Secrets, runtime: RuntimeKind, value: &Value) -> Vec<String> {
    let marker = Marker::new(secrets, runtime);
    let mut found = Vec::new();
    if let Some(masked) = marker.value(value) {
        marker.collect_differences(value, &masked, &mut found);
    }
    found
}

/// Masks everything in a provider configuration that is named like a credential. Masking too much does no harm
/// here, because nobody reviews these values one by one.
#[must_use]
pub fn mask_provider(secrets: &Secrets, configuration: &Value) -> Value {
    fn masked(secrets: &Secrets, value: &Value, below_credential: bool) -> Value {
        match value {
            _ if masked_value::is_opaque(value) => value.clone(),
            Value::Object(map) => {
                let member = |key: &String, value: &Value| {
                    let below = below_credential || is_credential_name(key);
                    (key.clone(), masked(secrets, value, below))
                };
                Value::Object(map.iter().map(|(key, value)| member(key, value)).collect())
            }
            Value::Array(items) => items
                .iter()
                .map(|item| masked(secrets, item, below_credential))
                .collect(),
            Value::Null => Value::Null,
            Value::String(text) if below_credential => mask_text(secrets, text),
            leaf if below_credential => secrets.mark(leaf),
            leaf => {
                let marker = Marker::new(secrets, RuntimeKind::Terraform);
                marker.value(leaf).unwrap_or_else(|| leaf.clone())
            }
        }
    }
    masked(secrets, configuration, false)
}

fn is_credential_name(key: &str) -> bool {
    let key = key.to_lowercase();
    ["secret", "password", "token", "key", "credential", "private"]
        .iter()
        .any(|word| key.contains(word))
        || secret_names::is_secret_name(&key)
}

/// Masks the attributes and extensions of a resource for display, without asking a provider or a server.
#[must_use]
pub fn mask_resource(secrets: &Secrets, resource: &Resource) -> Resource {
    let attributes = match resource.runtime {
        RuntimeKind::Kubernetes => {
            let places = SecretPlaces::find(Some(&resource.attributes), &WrittenReferences::new());
            mask_object_at(secrets, &resource.attributes, &places)
        }
        RuntimeKind::Terraform => mask_terraform(secrets, type_of(resource), &resource.attributes),
    };
    let mut extensions = mask_terraform(secrets, "", &resource.extensions).into_owned();
    if let Some(configuration) = extensions.get_mut("providerMeta") {
        *configuration = mask_provider(secrets, &resource.extensions["providerMeta"]);
    }
    Resource {
        extensions,
        ..resource.with(attributes.into_owned())
    }
}

/// Returns the type of a Terraform resource, such as `aws_instance`.
fn type_of(resource: &Resource) -> &str {
    let named = resource.extensions.get("resourceType").and_then(Value::as_str);
    named
        .or_else(|| Some(resource.id.terraform()?.kind))
        .unwrap_or_default()
}

/// Replaces secrets by markers, according to the rules of one runtime.
struct Marker<'a> {
    secrets: &'a Secrets,
    runtime: RuntimeKind,
    /// The secrets in each document that was parsed already. Nested documents are parsed again at each level without
    /// this cache.
    documents: RefCell<HashMap<String, Vec<String>>>,
}

impl<'a> Marker<'a> {
    fn new(secrets: &'a Secrets, runtime: RuntimeKind) -> Self {
        Self {
            secrets,
            runtime,
            documents: RefCell::default(),
        }
    }

    fn map<'m>(&self, map: &'m Map<String, Value>) -> Cow<'m, Map<String, Value>> {
        // A marker is masked already, so its members are not visited.
        if map.len() == 1 && masked_value::is_opaque(&Value::Object(map.clone())) {
            return Cow::Borrowed(map);
        }
        let mut masked: Option<Map<String, Value>> = None;
        for (key, value) in map {
            if let Some(new) = self.member(map, key, value) {
                masked.get_or_insert_with(|| map.clone()).insert(key.clone(), new);
            }
        }
        masked.map_or(Cow::Borrowed(map), Cow::Owned)
    }

    /// Returns the replacement for a member of a map; `None` to keep the member.
    fn member(&self, map: &Map<String, Value>, key: &str, value: &Value) -> Option<Value> {
        // The shape of a Secret decides first: everything in it is secret, whatever its name.
        if let Some(place) = place_of(map, key) {
            return Some(mask_place(self.secrets, place, value));
        }
        if let Some(items) = items_of_secrets(map, key) {
            return self.items(items, |item| self.item_of_secrets(item));
        }
        let named = secret_names::says(key);
        let marked = match named {
            NameClass::Nothing if key == "value" => {
                // An environment variable of a container: `{name: DB_PASSWORD, value: …}`. Its value is never the name
                // of an object, so the stricter rule for Terraform is used.
                let name = ["name", "key"].iter().find_map(|of| map.get(*of)?.as_str());
                let says = name.map_or(NameClass::Nothing, secret_names::says);
                self.named(says, value, RuntimeKind::Terraform)
            }
            NameClass::Nothing => None,
            says => self.named(says, value, self.runtime),
        };
        marked.or_else(|| self.value(value))
    }

    fn value(&self, value: &Value) -> Option<Value> {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => self.items(items, |item| self.value(item)),
            Value::Object(map) => match self.map(map) {
                Cow::Borrowed(_) => None,
                Cow::Owned(masked) => Some(Value::Object(masked)),
            },
            _ => None,
        }
    }

    fn items(&self, items: &[Value], masked: impl Fn(&Value) -> Option<Value>) -> Option<Value> {
        let new: Vec<Option<Value>> = items.iter().map(masked).collect();
        new.iter().any(Option::is_some).then(|| {
            let both = items.iter().zip(new);
            both.map(|(old, new)| new.unwrap_or_else(|| old.clone()))
                .collect()
        })
    }

    /// Masks an item of a list of Secrets. The item has the kind of the list, unless it names another one.
    fn item_of_secrets(&self, item: &Value) -> Option<Value> {
        let mut masked = self.value(&as_secret(item)?)?;
        if item.get("kind").is_none() {
            masked.as_object_mut()?.remove("kind");
        }
        Some(masked)
    }

    /// Masks a value that is secret by its name. A reference to a secret is kept.
    fn named(&self, says: NameClass, value: &Value, runtime: RuntimeKind) -> Option<Value> {
        match value {
            _ if says == NameClass::Nothing || masked_value::is_opaque(value) => None,
            Value::String(text) => {
                let is_name = says == NameClass::SecretOrName
                    && runtime == RuntimeKind::Kubernetes
                    && is_object_name(text);
                if text.is_empty() || token_patterns::is_placeholder(text) || is_name {
                    return None;
                }
                if let Some(mark) = reference_mark(self.secrets, text) {
                    return Some(mark);
                }
                self.secrets.learn_named(text);
                Some(self.secrets.marked(value))
            }
            Value::Number(_) if says == NameClass::Password => Some(self.secrets.marked(value)),
            Value::Array(items) => self.items(items, |item| match item {
                // `set_sensitive = [{name = "…", value = "…"}]`.
                Value::Object(map) => {
                    let masked = self.value(item);
                    let marked = map
                        .get("value")
                        .and_then(|value| self.named(says, value, runtime));
                    let Some(marked) = marked else { return masked };
                    let mut item = masked.unwrap_or_else(|| item.clone());
                    item["value"] = marked;
                    Some(item)
                }
                item => self.named(says, item, runtime),
            }),
            // `passwords = {admin = "…"}`, but also `credentials = {secret_name = "…"}`.
            Value::Object(map) if runtime == RuntimeKind::Terraform => {
                let mut masked = map.clone();
                for (key, member) in &mut masked {
                    let new = if says_what_it_is(key) {
                        self.member(map, key, member)
                    } else {
                        self.named(says, member, runtime)
                    };
                    if let Some(new) = new {
                        *member = new;
                    }
                }
                (masked != *map).then_some(Value::Object(masked))
            }
            _ => None,
        }
    }

    /// Masks the parts of a text that are secret by their shape. A text that is a JSON or YAML document is parsed.
    fn text(&self, text: &str) -> Option<Value> {
        let whole = || Some(self.secrets.mark(&Value::String(text.to_owned())));
        let mut shown = String::new();
        let mut kept = 0;
        // Mask first the parts that are secret in any text, such as tokens.
        for part in token_patterns::secret_parts(text) {
            let secret = &text[part.clone()];
            if secret.len() == text.len() {
                return whole();
            }
            self.secrets.learn_named(secret);
            shown.push_str(&text[kept..part.start]);
            shown.push_str(&self.stand_in(secret));
            kept = part.end;
        }
        shown.push_str(&text[kept..]);
        // Then the secrets inside a document. Each is replaced in the original text, because writing the document anew
        // would change its layout.
        for secret in self.inside(text) {
            let stand_in = self.stand_in(&secret);
            match encodings::hide_escaped(&shown, &stand_in, &secret) {
                Some(hidden) => shown = hidden,
                // An earlier replacement already covered the same secret.
                None if shown.contains(&stand_in) => {}
                // The secret cannot be located in the text (it may be escaped), so the whole text is masked.
                None => return whole(),
            }
        }
        (shown != text).then_some(Value::String(shown))
    }

    /// Returns the replacement for a secret in a text. Each secret has its own, so that a change is visible.
    fn stand_in(&self, secret: &str) -> String {
        format!("$secret:{}", self.secrets.hash(secret.as_bytes()))
    }

    /// Returns the secrets in a text that is a JSON document or a YAML manifest, including nested documents.
    fn inside(&self, text: &str) -> Vec<String> {
        let start = text.trim_start();
        // A JSON string may contain another document, with escapes.
        let json = start.starts_with(['{', '[', '"']);
        let manifest = text.contains("stringData") || (text.contains("kind") && text.contains("Secret"));
        if text.len() > LARGEST_DOCUMENT || !(json || manifest) {
            return Vec::new();
        }
        if let Some(found) = self.documents.borrow().get(text) {
            return found.clone();
        }
        let documents = match serde_json::from_str::<Value>(text) {
            Ok(document) => vec![document],
            Err(_) if manifest => konverge_base::yaml::documents(text).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let mut found = Vec::new();
        // Any plain text is a YAML scalar with the same text. That is not a document, so it is left out.
        for document in documents
            .iter()
            .filter(|document| document.as_str() != Some(text))
        {
            // A parsed document never contains real markers, so everything that looks like one is escaped.
            let document = masked_value::escape_marks(document);
            if let Some(masked) = self.value(&document) {
                self.collect_differences(&document, &masked, &mut found);
            }
        }
        // The longest secret comes first: otherwise replacing a part of it would leave the rest in clear text.
        found.sort_by_key(|text| std::cmp::Reverse(text.len()));
        found.dedup();
        self.documents.borrow_mut().insert(text.to_owned(), found.clone());
        found
    }

    /// Collects the texts of a value that differ from its masked form. Of a partly masked text only the masked parts.
    fn collect_differences(&self, clear: &Value, masked: &Value, found: &mut Vec<String>) {
        match (clear, masked) {
            (Value::Object(clear), Value::Object(masked)) => {
                let members = clear
                    .iter()
                    .filter_map(|(key, member)| Some((member, masked.get(key)?)));
                members.for_each(|(member, masked)| self.collect_differences(member, masked, found));
            }
            (Value::Array(clear), Value::Array(masked)) => {
                let items = clear.iter().zip(masked);
                items.for_each(|(item, masked)| self.collect_differences(item, masked, found));
            }
            (Value::String(text), Value::String(masked)) if text != masked => {
                let parts = token_patterns::secret_parts(text);
                found.extend(parts.into_iter().map(|part| text[part].to_owned()));
                found.extend(self.inside(text));
            }
            (Value::String(text), masked) if clear != masked && !text.is_empty() => found.push(text.clone()),
            (Value::Number(number), masked) if clear != masked => found.push(number.to_string()),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "masking_tests.rs"]
mod tests;
