//! Resolves items to module resources: decides which of them Terraform plans, and with which state.

use std::collections::{BTreeMap, HashMap};

use serde_json::Map;

use super::{
    address::Addresses,
    error::{TerraformError, of_resource},
    module_resource::{self, ModuleResource},
    options::TerraformOptions,
    provider_settings,
    providers::{self, ProviderRef},
    state_document::TerraformState,
};
use konverge_base::{
    error::ErrorKind,
    model::{
        ResourceId,
        spec::{Resource, RuntimeKind},
    },
};
use konverge_engine::runtime::Item;
use konverge_secrets::WrittenReferences;

/// The items of a batch, grouped by what has to be done.
#[derive(Debug, Default)]
pub(super) struct ResolvedItems {
    /// The resources that Terraform plans.
    pub(super) subjects: Vec<ModuleResource>,
    /// The resources that are only removed from the state, each with the reason.
    pub(super) forgotten: Vec<(Item, String)>,
    /// The resources that cannot be planned.
    pub(super) failed: Vec<(ResourceId, TerraformError)>,
    /// The needed providers, with the allowed hashes of their packages.
    pub(super) providers: BTreeMap<ProviderRef, Vec<String>>,
}

/// Groups items. `moved` maps ids to the ids to which their state moved earlier in this run.
pub(super) fn draft(
    items: Vec<Item>,
    book: &TerraformState,
    moved: &HashMap<ResourceId, ResourceId>,
    options: &TerraformOptions,
) -> ResolvedItems {
    let mut drafts = ResolvedItems::default();
    let mut addresses = Addresses::default();
    // A state may move to another id only if the Spec no longer has the old one.
    let wanted: Vec<ResourceId> = items
        .iter()
        .filter(|i| i.desired.is_some())
        .map(|i| i.id.clone())
        .collect();
    for item in items {
        let id = item.id.clone();
        if item.desired.is_none() {
            let reason = if module_resource::is_kept(&item) {
                Some("kept: `konverge/keep` is set".to_owned())
            } else if let Some(new) = moved.get(&id) {
                Some(format!("moved to `{new}`"))
            } else if !book.resources.contains_key(&id) {
                Some(nothing_held(book, &id))
            } else {
                None
            };
            if let Some(reason) = reason {
                drafts.forgotten.push((item, reason));
                continue;
            }
        }
        let subject = resolve_item(item, book, &wanted, &mut addresses)
            .and_then(|subject| admit(subject, book, options, &mut drafts.providers));
        match subject {
            Ok(subject) => drafts.subjects.push(subject),
            Err(error) => drafts.failed.push((id, error)),
        }
    }
    drafts
}

/// Describes why a resource is only removed from the state, and what may be left of its object.
fn nothing_held(book: &TerraformState, id: &ResourceId) -> String {
    let nothing = "it is not in Terraform's state";
    let Some(flight) = book.in_flight.get(id) else {
        return nothing.to_owned();
    };
    let found = match &flight.id {
        Some(id) => format!("it made an object with the id `{id}`"),
        None => "it may have made an object".to_owned(),
    };
    format!(
        "{nothing}, but an earlier run was stopped during its {}: {found}, which is to be deleted by hand",
        flight.action
    )
}

fn resolve_item(
    item: Item,
    book: &TerraformState,
    wanted: &[ResourceId],
    addresses: &mut Addresses,
) -> Result<ModuleResource, TerraformError> {
    let held = book.resources.get(&item.id);
    let Some(desired) = &item.desired else {
        let holding = held.expect("an item without a holding is forgotten");
        return Ok(ModuleResource::recorded(item, holding, addresses));
    };
    let (address, provider, meta) = module_resource::parse_desired(desired)?;
    // The state moves from the id in the Spec, or from the id that this resource had before ids were
    // normalized.
    let renamed = item
        .prior
        .as_ref()
        .map(|prior| prior.id.clone())
        .filter(|old| *old != item.id);
    let origin = module_resource::moved_from(&item)
        .or(renamed)
        .filter(|old| held.is_none() && !wanted.contains(old) && book.resources.contains_key(old));
    let holding = match &origin {
        Some(old) => book.resources.get(old),
        None => held,
    };
    if let Some(holding) = holding.filter(|h| h.address.kind != address.kind) {
        let (id, from, to) = (&item.id, &holding.address.kind, address.kind);
        let what = format!("the type of `{id}` would change from `{from}` to `{to}`");
        let hint = "give the new resource another id; the old resource is then deleted";
        return Err(of_resource(ErrorKind::Terraform, id, what).hint(hint).into());
    }
    Ok(ModuleResource {
        address: addresses.take(address, &item.id),
        provider,
        meta,
        holding: holding.cloned(),
        moved_from: origin,
        made: book.in_flight.get(&item.id).and_then(|flight| flight.id.clone()),
        written: WrittenReferences::new(),
        item,
    })
}

/// Checks what a desired resource sets for its provider. This needs no Terraform, so a preview that only
/// compares Specs can do it, too.
///
/// # Errors
/// The Spec sets a setting or a value that it may not choose, or it has provider settings but names no
/// provider.
pub fn check_provider_settings(desired: &Resource, options: &TerraformOptions) -> Result<(), TerraformError> {
    let meta = providers::meta_of(desired);
    let is_empty = meta.as_object().is_none_or(Map::is_empty);
    if desired.runtime != RuntimeKind::Terraform || is_empty {
        return Ok(());
    }
    let provider = ProviderRef::from_resource(desired)?;
    if provider.is_builtin() {
        Ok(())
    } else {
        provider_settings::check(&desired.id, &provider, &meta, options)
    }
}

/// Checks the provider of a resource: it must be allowed, and the whole module must use one version of it.
fn admit(
    mut subject: ModuleResource,
    book: &TerraformState,
    options: &TerraformOptions,
    providers: &mut BTreeMap<ProviderRef, Vec<String>>,
) -> Result<ModuleResource, TerraformError> {
    if subject.provider.is_builtin() {
        return Ok(subject);
    }
    let other = providers
        .keys()
        .find(|p| p.source == subject.provider.source && p.version != subject.provider.version)
        .cloned();
    match other {
        // Terraform runs one version of a provider, so a deletion uses that of the other resources.
        Some(other) if subject.item.desired.is_none() => subject.provider = other,
        Some(other) => {
            let (id, ProviderRef { source, version }) = (subject.id(), &subject.provider);
            let other = other.version;
            let what =
                format!("`{id}` needs {source} {version}, but another resource of the stack needs {other}");
            let hint = "give all resources of the stack the same version of it";
            return Err(of_resource(ErrorKind::Terraform, id, what).hint(hint).into());
        }
        None => {}
    }
    // Settings are checked only for a desired resource: a deletion uses those with which the object was created,
    // even if they are no longer allowed.
    if let Some(desired) = &subject.item.desired {
        check_provider_settings(desired, options)?;
    }
    let hashes = book.allowed_hashes(options, subject.id(), &subject.provider)?;
    providers.insert(subject.provider.clone(), hashes.to_vec());
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllowedProvider, address::Address, resource_state::ResourceState, state_document::InFlight};
    use konverge_engine::runtime::Needs;
    use konverge_secrets::{HashKey, Secrets};
    use serde_json::{Value, json};

    fn item(id: &str, extensions: Option<Value>) -> Item {
        let desired = extensions.map(|extensions| Resource {
            extensions: extensions.as_object().unwrap().clone(),
            ..Resource::new(id.parse().unwrap(), RuntimeKind::Terraform, Map::new())
        });
        Item {
            id: id.parse().unwrap(),
            cluster: None,
            prior: None,
            desired,
            needs: Needs::default(),
        }
    }

    fn book(ids: &[&str]) -> TerraformState {
        let mut book = TerraformState::default();
        for id in ids {
            let holding = ResourceState {
                address: Address {
                    kind: "t_x".to_owned(),
                    name: "old".to_owned(),
                },
                provider: ("registry.terraform.io/n/t".to_owned(), "1.0.0".to_owned()),
                meta: json!({}),
                entry: json!({}),
            };
            book.resources.insert(id.parse().unwrap(), holding);
        }
        book
    }

    fn options() -> TerraformOptions {
        let mut options = TerraformOptions::new(Secrets::new(HashKey::derive("k")));
        options.providers = vec![AllowedProvider {
            source: "n/t".to_owned(),
            version: "1.0.0".to_owned(),
            hashes: Vec::new(),
        }];
        options
    }

    #[test]
    fn a_renamed_resource_takes_its_state_along() {
        let items = vec![item(
            "n:t:t_x:new",
            Some(json!({"provider": "n/t/1.0.0", "konverge/moved-from": "n:t:t_x:old"})),
        )];
        let drafts = draft(items, &book(&["n:t:t_x:old"]), &HashMap::new(), &options());
        let subject = &drafts.subjects[0];
        assert_eq!(subject.moved_from.as_ref().unwrap().as_str(), "n:t:t_x:old");
        assert_eq!(subject.address.to_string(), "t_x.new");
        assert!(subject.holding.is_some());
        let moved = HashMap::from([("n:t:t_x:old".parse().unwrap(), "n:t:t_x:new".parse().unwrap())]);
        let items = vec![item("n:t:t_x:old", None)];
        let drafts = draft(items, &book(&["n:t:t_x:old"]), &moved, &options());
        assert!(drafts.subjects.is_empty());
        assert_eq!(drafts.forgotten[0].1, "moved to `n:t:t_x:new`");
    }

    #[test]
    fn what_may_not_run_fails_alone() {
        let items = vec![
            item("n:t:t_x:a", Some(json!({"provider": "n/t/1.0.0"}))),
            item("n:t:t_x:b", Some(json!({"provider": "n/t/1.0.1"}))),
            item(
                "e:vil:e_x:c",
                Some(json!({"provider": "evil.example/e/vil/1.0.0"})),
            ),
        ];
        let drafts = draft(items, &TerraformState::default(), &HashMap::new(), &options());
        assert_eq!(drafts.subjects.len(), 1);
        let [two_versions, not_allowed] = [0, 1].map(|at| drafts.failed[at].1.to_string());
        assert!(two_versions.ends_with("another resource of the stack needs 1.0.0"));
        assert!(not_allowed.ends_with("which is not allowed here"));
        assert_eq!(drafts.providers.len(), 1);
    }

    #[test]
    fn what_goes_without_state_is_forgotten() {
        let items = vec![item("n:t:t_x:a", None), item("n:t:t_x:b", None)];
        let mut book = book(&["n:t:t_x:b"]);
        let drafts = draft(items.clone(), &book, &HashMap::new(), &options());
        assert_eq!(drafts.forgotten.len(), 1);
        assert_eq!(drafts.subjects[0].id().as_str(), "n:t:t_x:b");
        let flight = InFlight {
            action: "create".to_owned(),
            address: "t_x.a".to_owned(),
            id: Some("i-1".to_owned()),
            planned: false,
        };
        book.in_flight.insert("n:t:t_x:a".parse().unwrap(), flight);
        let drafts = draft(items, &book, &HashMap::new(), &options());
        assert!(
            drafts.forgotten[0].1.contains("the id `i-1`"),
            "{:?}",
            drafts.forgotten
        );
    }

    #[test]
    fn what_an_interrupted_run_made_is_imported() {
        let wanted = || vec![item("n:t:t_x:a", Some(json!({"provider": "n/t/1.0.0"})))];
        // With and without an older object that the created one has replaced.
        for mut book in [book(&[]), book(&["n:t:t_x:a"])] {
            let flight = InFlight {
                action: "create".to_owned(),
                address: "t_x.a".to_owned(),
                id: Some("i-1".to_owned()),
                planned: false,
            };
            book.in_flight.insert("n:t:t_x:a".parse().unwrap(), flight);
            let drafts = draft(wanted(), &book, &HashMap::new(), &options());
            assert_eq!(drafts.subjects[0].import_id(), Some("i-1"));
            assert!(drafts.subjects[0].resource_state().is_none());
        }
    }
}
