//! The address of a Terraform resource: `type.name`.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};

use super::error::{TerraformError, of_resource};
use konverge_base::{
    error::ErrorKind,
    model::{
        Digest, ResourceId,
        spec::{Resource, terraform_type},
    },
};

/// The resource that represents every unknown value.
pub(super) const PLACEHOLDER: &str = "konverge_unknown";

/// An address `type.name`, of two identifiers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Address {
    /// The type of the resource.
    pub(super) kind: String,
    /// The name of the resource in the module.
    pub(super) name: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.name)
    }
}

impl Address {
    /// Returns the address of a resource. The type comes from `extensions.resourceType` or the third part of
    /// the id, the name from the last part. A part that is not an identifier gets a hash of the id, so that
    /// different ids have different addresses.
    pub(super) fn from_resource(resource: &Resource) -> Result<Self, TerraformError> {
        let id = &resource.id;
        let kind = terraform_type(id, &resource.extensions).filter(|kind| is_identifier(kind));
        let kind = kind.ok_or_else(|| {
            let what = format!(
                "`{id}` has no resource type: neither `extensions.resourceType` nor the third part of its id is a valid type"
            );
            of_resource(ErrorKind::Spec, id, what)
        })?;
        let name = id.name();
        let plain = is_identifier(name) && name != PLACEHOLDER;
        Ok(Self {
            kind: kind.to_owned(),
            name: if plain {
                name.to_owned()
            } else {
                distinct(name, id)
            },
        })
    }

    /// Returns an address with the hash of the id in its name, so that no other resource has it.
    fn distinct(&self, id: &ResourceId) -> Self {
        Self {
            kind: self.kind.clone(),
            name: distinct(&self.name, id),
        }
    }
}

/// The addresses of a module, each of which only one resource has.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    taken: HashMap<Address, ResourceId>,
}

impl Addresses {
    /// Returns the preferred address, or a similar one if another resource already has it.
    pub(super) fn take(&mut self, wanted: Address, id: &ResourceId) -> Address {
        let address = match self.taken.get(&wanted) {
            Some(other) if other != id => wanted.distinct(id),
            _ => wanted,
        };
        self.taken.insert(address.clone(), id.clone());
        address
    }
}

/// Returns true if Terraform accepts the text as a name.
pub(super) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && text.len() <= 200
}

fn distinct(name: &str, id: &ResourceId) -> String {
    let clean: String = name
        .chars()
        .take(100)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let hash = Digest::of_bytes(id.as_str().as_bytes()).short();
    format!("r_{clean}_{}", &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::{Map, json};

    fn resource(id: &str) -> Resource {
        Resource::new(id.parse().unwrap(), RuntimeKind::Terraform, Map::new())
    }

    #[test]
    fn ids_become_addresses() {
        let of = |id: &str| Address::from_resource(&resource(id)).unwrap().to_string();
        assert_eq!(of("hashicorp:local:local_file:greeting"), "local_file.greeting");
        let odd = of("hashicorp:local:local_file:a.b/c\"${d}");
        assert!(
            odd.strip_prefix("local_file.").is_some_and(is_identifier),
            "{odd}"
        );
        assert_ne!(
            of("hashicorp:local:local_file:a.b"),
            of("hashicorp:local:local_file:a/b")
        );
        assert_ne!(
            of("hashicorp:local:local_file:konverge_unknown"),
            "local_file.konverge_unknown"
        );
        assert!(Address::from_resource(&resource("short:id")).is_err());
        let mut typed = resource("short:id");
        typed.extensions.insert("resourceType".into(), json!("a_type"));
        assert_eq!(Address::from_resource(&typed).unwrap().to_string(), "a_type.id");
        typed
            .extensions
            .insert("resourceType".into(), json!("a\" {} resource \""));
        assert!(Address::from_resource(&typed).is_err());
    }

    #[test]
    fn two_resources_never_share_an_address() {
        let mut addresses = Addresses::default();
        let (one, two) = (resource("a:x:t_y:n"), resource("b:x:t_y:n"));
        let first = addresses.take(Address::from_resource(&one).unwrap(), &one.id);
        let second = addresses.take(Address::from_resource(&two).unwrap(), &two.id);
        assert_ne!(first, second);
        assert_eq!(addresses.take(first.clone(), &one.id), first);
    }
}
