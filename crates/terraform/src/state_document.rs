//! The Terraform state of a stack: the entries of all its Terraform resources, in one document of the stack's
//! state, encrypted if a key is configured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    address::Address,
    error::TerraformError,
    options::TerraformOptions,
    providers::{ProviderRef, check_allowed},
    resource_state::ResourceState,
    state_encryption::{self, StateEncryption},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, state::Replacement},
};

/// The key of the document in the stack's runtime data.
pub const STATE: &str = "terraform/state";

/// The Terraform state of a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TerraformState {
    version: u32,
    /// The state of each resource.
    pub(super) resources: BTreeMap<ResourceId, ResourceState>,
    /// Operations that were in flight when the document was written. If the run was killed, their objects may
    /// exist, even incompletely.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) in_flight: BTreeMap<ResourceId, InFlight>,
    /// Replacements that were started and not completed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) begun: BTreeMap<ResourceId, Replacement>,
    /// Created resources whose object a later deletion removes, with the deleted resource that had the same
    /// object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) taken: BTreeMap<ResourceId, ResourceId>,
    /// The hashes of each provider's package at its first use, by `source version`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hashes: BTreeMap<String, Vec<String>>,
}

/// An operation in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InFlight {
    /// Terraform's word for the operation: `create`, `update` or `delete`.
    pub(super) action: String,
    pub(super) address: String,
    /// The id with which Terraform reported the resource complete, before its state was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// True if Terraform did not report the start of the operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) planned: bool,
}

impl InFlight {
    /// Returns the entry of a planned creation, before Terraform reports anything about it.
    pub(super) fn planned(address: &Address) -> Self {
        Self {
            action: "create".to_owned(),
            address: address.to_string(),
            id: None,
            planned: true,
        }
    }
}

impl Default for TerraformState {
    fn default() -> Self {
        Self {
            version: 1,
            resources: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            begun: BTreeMap::new(),
            taken: BTreeMap::new(),
            hashes: BTreeMap::new(),
        }
    }
}

impl TerraformState {
    /// Reads the state from a stack's runtime data; empty if there is none yet.
    pub(super) fn open(
        data: &BTreeMap<String, Value>,
        key: Option<&dyn StateEncryption>,
    ) -> Result<Self, TerraformError> {
        let Some(stored) = data.get(STATE).filter(|stored| !stored.is_null()) else {
            return Ok(Self::default());
        };
        // The parser's message could quote the decrypted data, so it is not shown.
        let book: Self = serde_json::from_value(state_encryption::open(key, stored)?)
            .map_err(|_| damaged("does not have the expected format"))?;
        if book.version != 1 {
            let version = book.version;
            return Err(damaged(&format!("has version {version}, and this Konverge reads 1")).into());
        }
        Ok(book)
    }

    /// Removes a resource.
    pub(super) fn forget(&mut self, id: &ResourceId) {
        self.resources.remove(id);
        self.in_flight.remove(id);
        self.begun.remove(id);
        self.taken.remove(id);
    }

    /// Returns the document as it is stored.
    pub(super) fn seal(&self, key: Option<&dyn StateEncryption>) -> Result<Value, TerraformError> {
        let document = serde_json::to_value(self).map_err(|_| damaged("cannot be written"))?;
        state_encryption::seal(key, &document)
    }

    /// Returns the allowed hashes of a provider's package: the listed ones, or those at its first use.
    ///
    /// # Errors
    /// The provider is not listed.
    pub(super) fn allowed_hashes<'a>(
        &'a self,
        options: &'a TerraformOptions,
        id: &ResourceId,
        provider: &ProviderRef,
    ) -> Result<&'a [String], TerraformError> {
        let listed = check_allowed(&options.providers, id, provider)?;
        if !listed.is_empty() {
            return Ok(listed);
        }
        let first = self
            .hashes
            .get(&format!("{} {}", provider.source, provider.version));
        Ok(first.map_or(listed, Vec::as_slice))
    }

    /// Records the hashes of a provider's package.
    pub(super) fn remember_hashes(&mut self, provider: &ProviderRef, hashes: &[String]) {
        if !hashes.is_empty() {
            self.hashes
                .entry(format!("{} {}", provider.source, provider.version))
                .or_insert_with(|| hashes.to_vec());
        }
    }
}

fn damaged(why: &str) -> UserError {
    UserError::new(ErrorKind::State, format!("a document of Terraform's state {why}"))
}

/// Removes resources from the document without changing live objects. Returns the ids that were in it.
///
/// # Errors
/// The document cannot be decrypted or encrypted.
pub fn forget(
    data: &mut BTreeMap<String, Value>,
    key: Option<&dyn StateEncryption>,
    ids: &[ResourceId],
) -> Result<Vec<ResourceId>, UserError> {
    if ids.is_empty() || !data.contains_key(STATE) {
        return Ok(Vec::new());
    }
    let mut book = TerraformState::open(data, key)?;
    let held = |id: &&ResourceId| book.resources.contains_key(*id) || book.in_flight.contains_key(*id);
    let held: Vec<ResourceId> = ids.iter().filter(held).cloned().collect();
    for id in &held {
        book.forget(id);
    }
    if !held.is_empty() {
        data.insert(STATE.to_owned(), book.seal(key)?);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Reverses the text, which is enough to distinguish encrypted from clear text.
    struct Reversed;

    impl StateEncryption for Reversed {
        fn seal(&self, document: &Value) -> Result<Value, UserError> {
            Ok(json!({"reversed": document.to_string().chars().rev().collect::<String>()}))
        }

        fn open(&self, sealed: &Value) -> Result<Value, UserError> {
            let text: String = sealed["reversed"].as_str().unwrap().chars().rev().collect();
            Ok(serde_json::from_str(&text).unwrap())
        }
    }

    #[test]
    fn it_is_kept_whole_and_closed() {
        let key = Reversed;
        let mut book = TerraformState::default();
        book.resources.insert(
            "n:t:t_x:a".parse().unwrap(),
            ResourceState {
                address: Address {
                    kind: "t_x".to_owned(),
                    name: "a".to_owned(),
                },
                provider: ("h/n/t".to_owned(), "1.0.0".to_owned()),
                meta: json!({"secret_key": "hunter2222"}),
                entry: json!({"instances": [{"private": "cHJpdmF0ZQ==", "schema_version": 3, "identity": null}]}),
            },
        );
        let stored = book.seal(Some(&key)).unwrap();
        assert!(!stored.to_string().contains("hunter2222"));
        let data = BTreeMap::from([(STATE.to_owned(), stored)]);
        assert_eq!(TerraformState::open(&data, Some(&key)).unwrap(), book);
        let closed = UserError::from(TerraformState::open(&data, None).unwrap_err());
        assert!(closed.message.contains("no key to decrypt it"), "{closed}");
        assert_eq!((closed.kind, closed.hints.len()), (ErrorKind::Secret, 1));
        assert_eq!(
            TerraformState::open(&BTreeMap::new(), None).unwrap(),
            TerraformState::default()
        );
        let mut data = data;
        let ids = ["n:t:t_x:a".parse().unwrap(), "n:t:t_x:b".parse().unwrap()];
        assert_eq!(forget(&mut data, Some(&key), &ids).unwrap(), ids[..1]);
        assert_eq!(
            TerraformState::open(&data, Some(&key)).unwrap(),
            TerraformState::default()
        );
    }
}
