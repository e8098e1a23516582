//! One item of a batch in Terraform's terms: its address, provider and state, without settings that are not
//! allowed.

use serde_json::{Map, Value, json};

use super::{
    address::{Address, Addresses, is_identifier},
    error::{TerraformError, of_resource},
    providers::{self, ProviderRef},
    resource_state::ResourceState,
};
use konverge_base::{
    error::ErrorKind,
    model::{
        Digest, FieldPath, ResourceId,
        claim::{IMPORT_ID, MOVED_FROM},
        reference,
        spec::Resource,
    },
};
use konverge_engine::runtime::Item;
use konverge_secrets::WrittenReferences;

/// The extension that keeps the object when its resource is removed: the resource is only removed from the
/// state.
const KEEP: &str = "konverge/keep";

/// Terraform's meta-arguments that a Spec may not set. `provisioner` and `connection` would run commands.
const RESERVED: [&str; 7] = [
    "provisioner",
    "connection",
    "count",
    "for_each",
    "depends_on",
    "provider",
    "dynamic",
];

/// One item, converted for a module.
#[derive(Debug, Clone)]
pub(super) struct ModuleResource {
    pub(super) item: Item,
    pub(super) address: Address,
    pub(super) provider: ProviderRef,
    /// The configuration of the provider.
    pub(super) meta: Value,
    /// The recorded state of the resource.
    pub(super) holding: Option<ResourceState>,
    /// The earlier id, if the state moves from it.
    pub(super) moved_from: Option<ResourceId>,
    /// The id at the provider of an object that an interrupted run created and that is not in the state.
    pub(super) made: Option<String>,
    /// The references to secrets in the attributes, by path.
    pub(super) written: WrittenReferences,
}

impl ModuleResource {
    /// Returns a resource as the state has it.
    pub(super) fn recorded(item: Item, holding: &ResourceState, addresses: &mut Addresses) -> Self {
        Self {
            address: addresses.take(holding.address.clone(), &item.id),
            provider: holding.provider(),
            meta: holding.meta.clone(),
            holding: Some(holding.clone()),
            moved_from: None,
            made: None,
            written: WrittenReferences::new(),
            item,
        }
    }

    pub(super) fn id(&self) -> &ResourceId {
        &self.item.id
    }

    pub(super) fn wanted_id(&self) -> Option<String> {
        let desired = self.item.desired.as_ref()?;
        Some(Digest::of_json(&json!([desired.attributes, desired.extensions])).to_string())
    }

    /// Returns the state to record, with an entry of Terraform's state.
    pub(super) fn holding_of(&self, entry: &Value) -> ResourceState {
        ResourceState {
            address: self.address.clone(),
            provider: (self.provider.source.clone(), self.provider.version.clone()),
            meta: self.meta.clone(),
            entry: entry.clone(),
        }
    }

    /// Returns the state for the module: `None` if the recorded object was replaced by one that an
    /// interrupted run created.
    pub(super) fn resource_state(&self) -> Option<&ResourceState> {
        self.holding.as_ref().filter(|_| self.made.is_none())
    }

    /// Returns the id of the old object of an interrupted replacement that creates the new object first: the
    /// old one may still exist.
    pub(super) fn replaced(&self) -> Option<&str> {
        let made = self.made.as_deref()?;
        let lifecycle = self.item.desired.as_ref()?.attributes.get("lifecycle")?;
        let before = lifecycle.get("create_before_destroy") == Some(&Value::Bool(true));
        let old = self
            .holding
            .as_ref()
            .filter(|_| before)?
            .attributes()?
            .get("id")?;
        old.as_str().filter(|old| *old != made)
    }

    /// Returns the id of the object to import, if the resource has no state yet.
    pub(super) fn import_id(&self) -> Option<&str> {
        let desired = self.item.desired.as_ref()?;
        if self.resource_state().is_some() {
            return None;
        }
        let given = || desired.extensions.get(IMPORT_ID).and_then(Value::as_str);
        self.made.as_deref().or_else(given)
    }
}

/// Returns true if a deletion only removes the resource from the state and keeps its object.
pub(super) fn is_kept(item: &Item) -> bool {
    item.desired.is_none()
        && item.prior.as_ref().is_some_and(|prior| {
            matches!(prior.extensions.get(KEEP), Some(Value::Bool(true)))
                || prior.extensions.get(KEEP).and_then(Value::as_str) == Some("true")
        })
}

/// Returns true if a resource to be deleted was protected at the last apply.
pub(super) fn is_protected(item: &Item) -> bool {
    let prior = item.prior.as_ref().filter(|_| item.desired.is_none());
    prior.is_some_and(|prior| {
        let lifecycle = prior.attributes.get("lifecycle");
        lifecycle.and_then(|lifecycle| lifecycle.get("prevent_destroy")) == Some(&Value::Bool(true))
    })
}

/// Returns the earlier id of a desired resource.
pub(super) fn moved_from(item: &Item) -> Option<ResourceId> {
    item.desired
        .as_ref()?
        .extensions
        .get(MOVED_FROM)?
        .as_str()?
        .parse()
        .ok()
}

/// Parses a desired resource: its address, its provider and the configuration of the provider.
pub(super) fn parse_desired(desired: &Resource) -> Result<(Address, ProviderRef, Value), TerraformError> {
    check_reserved(&desired.id, &desired.attributes)?;
    for (key, value) in &desired.extensions {
        if let Some(path) = reference_in(value, FieldPath::root().join(key)) {
            let id = &desired.id;
            let what = format!(
                "`{id}` has a reference at `{path}` of its extensions, where references are not resolved"
            );
            return Err(of_resource(ErrorKind::Spec, id, what)
                .hint(
                    "references are resolved in attributes alone: write the value itself, or give it to the provider in the \
                     environment of this run",
                )
                .into());
        }
    }
    Ok((
        Address::from_resource(desired)?,
        ProviderRef::from_resource(desired)?,
        providers::meta_of(desired),
    ))
}

/// Returns the path of a reference in a text.
fn reference_in(value: &Value, path: FieldPath) -> Option<FieldPath> {
    match value {
        Value::String(text) => text.contains(reference::MARK).then_some(path),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| reference_in(item, path.item(index)))
        }
        Value::Object(map) => map
            .iter()
            .find_map(|(key, member)| reference_in(member, path.join(key))),
        _ => None,
    }
}

fn check_reserved(id: &ResourceId, attributes: &Map<String, Value>) -> Result<(), TerraformError> {
    let reserved = RESERVED.iter().find(|key| attributes.contains_key(**key));
    let key = match attributes.get("lifecycle") {
        _ if reserved.is_some() => reserved.copied().unwrap_or_default(),
        None => return Ok(()),
        Some(Value::Object(all)) if all.iter().all(|(key, value)| is_harmless(key, value)) => return Ok(()),
        Some(_) => "lifecycle",
    };
    let what = format!("`{id}` sets `{key}`, which is a Terraform meta-argument, not an attribute");
    let hint = "remove the key from the attributes; order is set with `dependsOn`";
    Err(of_resource(ErrorKind::Terraform, id, what).hint(hint).into())
}

/// Returns true for `lifecycle` with plain names only. Terraform reads the lists in it as expressions, so
/// other text is refused.
fn is_harmless(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("create_before_destroy" | "prevent_destroy", Value::Bool(_)) => true,
        ("ignore_changes", Value::String(text)) => text == "all",
        ("ignore_changes", Value::Array(paths)) => paths.iter().all(|path| {
            path.as_str()
                .is_some_and(|text| text.split('.').all(is_identifier))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_in_an_extension_is_refused() {
        let id: ResourceId = "n:t:t_x:a".parse().unwrap();
        let with = |meta: Value| Resource {
            extensions: json!({"provider": "n/t/1.0.0", "providerMeta": meta})
                .as_object()
                .unwrap()
                .clone(),
            ..Resource::new(
                id.clone(),
                konverge_base::model::spec::RuntimeKind::Terraform,
                Map::new(),
            )
        };
        let refused = parse_desired(&with(
            json!({"a": [{"host": "https://$kusion_path.n:t:t_x:b.host"}]}),
        ));
        let failure = konverge_base::error::UserError::from(refused.unwrap_err());
        assert!(
            failure.message.contains("n:t:t_x:a") && failure.message.contains("/providerMeta/a/0/host"),
            "{failure}"
        );
        assert!(!failure.hints.is_empty());
        parse_desired(&with(json!({"host": "$kusion_pathless"}))).unwrap();
    }

    #[test]
    fn what_would_run_commands_or_expressions_is_refused() {
        let id: ResourceId = "n:t:t_x:a".parse().unwrap();
        let check = |attributes: Value| check_reserved(&id, attributes.as_object().unwrap());
        for bad in [
            json!({"provisioner": [{"local-exec": {"command": "id"}}]}),
            json!({"connection": {}}),
            json!({"for_each": {"a": 1}}),
            json!({"lifecycle": {"precondition": {"condition": "${file(\"/etc/passwd\")}"}}}),
            json!({"lifecycle": {"ignore_changes": ["a[file(\"x\")]"]}}),
            json!({"lifecycle": "x"}),
        ] {
            assert!(check(bad.clone()).is_err(), "{bad}");
        }
        check(json!({"name": "x", "lifecycle": {"prevent_destroy": true, "ignore_changes": ["tags.owner"]}}))
            .unwrap();
    }
}
