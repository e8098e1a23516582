//! The record of each Terraform resource between runs: its whole entry of Terraform's state (schema version,
//! private data, deposed objects), and what a deletion needs when the Spec no longer has the resource.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::{address::Address, masking, providers::ProviderRef};

/// One resource of Terraform's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ResourceState {
    /// The address in the last applied module.
    pub(super) address: Address,
    /// The source and version of the provider.
    pub(super) provider: (String, String),
    /// The configuration of the provider.
    pub(super) meta: Value,
    /// The member of `resources` in a state of version 4.
    pub(super) entry: Value,
}

impl ResourceState {
    pub(super) fn provider(&self) -> ProviderRef {
        ProviderRef {
            source: self.provider.0.clone(),
            version: self.provider.1.clone(),
        }
    }

    /// Returns true if the state marks an attribute with a value as sensitive.
    pub(super) fn is_sensitive(&self) -> bool {
        self.instances().any(|instance| {
            let paths = instance.get("sensitive_attributes").and_then(Value::as_array);
            let attributes = &instance["attributes"];
            paths.is_some_and(|paths| paths.iter().any(|path| !value_at(attributes, path).is_null()))
        })
    }

    /// Returns the texts of the current object that the state marks as sensitive.
    pub(super) fn secret_texts(&self) -> Vec<String> {
        let instance = current(&self.entry);
        let paths = instance.and_then(|i| i.get("sensitive_attributes")?.as_array());
        let attributes = instance.map_or(&Value::Null, |i| &i["attributes"]);
        let at = paths.into_iter().flatten().map(|path| value_at(attributes, path));
        at.flat_map(|value| masking::secret_texts(value, &Value::Bool(true)))
            .collect()
    }

    /// Returns the attributes of the current object.
    pub(super) fn attributes(&self) -> Option<&Map<String, Value>> {
        current(&self.entry)?.get("attributes")?.as_object()
    }

    /// Returns true if an attribute of the current object has this id as its value.
    pub(super) fn shows(&self, id: &str) -> bool {
        let attributes = self.attributes().into_iter().flat_map(Map::values);
        attributes.into_iter().any(|value| value == id)
    }

    fn instances(&self) -> impl Iterator<Item = &Value> {
        self.entry
            .get("instances")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    }

    /// Returns the entry for a module, with this address and provider. Dependencies on resources outside the
    /// module are removed.
    pub(super) fn entry_for(&self, address: &Address, provider: &str, known: &[String]) -> Value {
        let mut entry = self.entry.clone();
        entry["type"] = json!(address.kind);
        entry["name"] = json!(address.name);
        entry["provider"] = json!(provider);
        if let Some(instances) = entry.get_mut("instances").and_then(Value::as_array_mut) {
            for instance in instances {
                if let Some(on) = instance.get_mut("dependencies").and_then(Value::as_array_mut) {
                    on.retain(|other| other.as_str().is_some_and(|text| known.iter().any(|k| k == text)));
                }
            }
        }
        entry
    }
}

/// Returns the value at a path of a state, or the nearest value above it.
fn value_at<'a>(attributes: &'a Value, path: &Value) -> &'a Value {
    let mut at = attributes;
    for step in path.as_array().into_iter().flatten() {
        let next = match step.get("value") {
            Some(Value::String(key)) => at.get(key),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return at,
        }
    }
    at
}

/// Returns the current object of a resource's entry, not a deposed one.
pub(super) fn current(entry: &Value) -> Option<&Value> {
    entry
        .get("instances")?
        .as_array()?
        .iter()
        .find(|instance| instance.get("deposed").is_none())
}

/// Returns a state of version 4 with these entries.
pub(super) fn document(terraform_version: &str, lineage: &str, entries: Vec<Value>) -> Value {
    json!({
        "version": 4,
        "terraform_version": terraform_version,
        "serial": 1,
        "lineage": lineage,
        "outputs": {},
        "resources": entries,
        "check_results": null,
    })
}

/// Returns the managed resources of a state that have an object, by address. `None` for an incomplete text,
/// which is read while Terraform writes.
pub(super) fn read_document(text: &[u8]) -> Option<BTreeMap<Address, Value>> {
    #[derive(Deserialize)]
    struct Document {
        version: u32,
        resources: Vec<Value>,
    }
    let document: Document = serde_json::from_slice(text).ok()?;
    if document.version != 4 {
        return None;
    }
    let text_of = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = document.resources.into_iter().filter_map(|entry| {
        let filled = entry
            .get("instances")
            .and_then(Value::as_array)
            .is_some_and(|i| !i.is_empty());
        if !filled || text_of(&entry, "mode")? != "managed" || entry.get("module").is_some() {
            return None;
        }
        let address = Address {
            kind: text_of(&entry, "type")?,
            name: text_of(&entry, "name")?,
        };
        Some((address, entry))
    });
    Some(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding() -> ResourceState {
        ResourceState {
            address: Address {
                kind: "t_x".to_owned(),
                name: "a".to_owned(),
            },
            provider: ("h/n/t".to_owned(), "1.0.0".to_owned()),
            meta: json!({}),
            entry: json!({"mode": "managed", "type": "t_x", "name": "a", "provider": "provider[\"h/n/t\"]", "instances": [
                {"deposed": "00000000", "schema_version": 1, "attributes": {"v": 0}},
                {"schema_version": 2, "attributes": {"v": 1}, "private": "cHJpdmF0ZQ==", "sensitive_attributes": [[{"type": "get_attr", "value": "v"}]],
                 "dependencies": ["t_x.b", "t_x.gone"]}]}),
        }
    }

    #[test]
    fn the_current_object_counts() {
        assert!(holding().is_sensitive());
        let mut text = holding();
        text.entry["instances"][1]["attributes"] = json!({"v": ["hunter2222", 1], "w": "x"});
        assert_eq!(text.secret_texts(), ["hunter2222"]);
        let mut unset = holding();
        unset.entry["instances"][1]["attributes"]["v"] = Value::Null;
        assert!(!unset.is_sensitive());
        assert_eq!(
            holding().attributes().unwrap()["v"],
            1,
            "the deposed object is not the current one"
        );
        let mut named = holding();
        named.entry["instances"][1]["attributes"]["id"] = json!("i-1");
        assert!(named.shows("i-1") && !named.shows("i-2"));
    }

    #[test]
    fn a_module_takes_it_at_another_address() {
        let address = Address {
            kind: "t_x".to_owned(),
            name: "renamed".to_owned(),
        };
        let entry = holding().entry_for(&address, "provider[\"h/n/t\"].m1", &["t_x.b".to_owned()]);
        let state = document(
            "1.11.4",
            "l",
            vec![
                entry,
                json!({"mode": "managed", "type": "t_x", "name": "empty", "instances": []}),
            ],
        );
        let read = read_document(state.to_string().as_bytes()).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), [&address]);
        let entry = &read[&address];
        assert_eq!(entry["instances"][1]["private"], "cHJpdmF0ZQ==");
        assert_eq!(entry["instances"][1]["dependencies"], json!(["t_x.b"]));
        assert_eq!(
            read_document(&state.to_string().as_bytes()[..80]),
            None,
            "half written"
        );
    }
}
