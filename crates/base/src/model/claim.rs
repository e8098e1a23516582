//! Claims: the identity of the real object behind a resource. Equal claims show that two stacks manage the same
//! object.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    ClusterName, ResourceId,
    digest::DigestBuilder,
    spec::{Resource, RuntimeKind, object_key, terraform_type},
    state::Recorded,
};

/// The extension with the import id of a Terraform resource.
pub const IMPORT_ID: &str = "kusionstack.io/import-id";

/// The extension with the id that a Terraform resource had before.
pub const MOVED_FROM: &str = "konverge/moved-from";

/// An object in the infrastructure that only one stack can own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// A Kubernetes object, in any version of its kind.
    Object {
        /// The cluster of the object.
        cluster: ClusterName,
        /// Group, kind, namespace (`default` if there is none) and name.
        key: [String; 4],
    },
    /// An existing object that a Terraform resource imports.
    Import {
        /// The resource type, such as `aws_vpc`.
        kind: String,
        /// The id at the provider, such as `vpc-0a1b`.
        id: String,
    },
    /// An object that a Terraform resource created or imported, by the keyed hash of its type and id.
    ObjectHash {
        /// The hash in hexadecimal.
        hash: String,
    },
}

impl Claim {
    /// Returns the claim of a resource of a Spec. `None` if the object is unknown: its cluster is unknown, or Terraform
    /// will create it.
    pub fn of_resource(resource: &Resource, cluster: Option<&ClusterName>) -> Option<Self> {
        let own = resource.extensions.get("cluster").and_then(Value::as_str);
        let own = own.and_then(|name| name.parse().ok());
        let cluster = own.as_ref().or(cluster);
        let (id, attributes) = (&resource.id, &resource.attributes);
        Self::new(resource.runtime, cluster, id, attributes, &resource.extensions)
    }

    /// Returns the claim of a recorded resource, by its attributes.
    pub fn of_recorded(recorded: &Recorded) -> Option<Self> {
        let (id, attributes) = (&recorded.id, &recorded.attributes);
        Self::new(
            recorded.runtime,
            recorded.cluster.as_ref(),
            id,
            attributes,
            &recorded.extensions,
        )
    }

    /// Returns the claim of a recorded resource on its object at the Terraform provider, by the hash of the id there.
    /// Two accounts may use the same id for different objects.
    pub fn of_object(recorded: &Recorded) -> Option<Self> {
        let hash = recorded.object_hash.clone()?;
        Some(Self::ObjectHash { hash })
    }

    /// Returns the text that is hashed for the claim on an object of a Terraform provider.
    pub fn hashed_text(kind: &str, id: &str) -> String {
        format!("{kind}\n{id}")
    }

    /// Returns all claims of a resource in a state.
    pub fn all_of_recorded(recorded: &Recorded) -> impl Iterator<Item = Self> {
        let own = Self::of_recorded(recorded);
        own.into_iter().chain(Self::of_object(recorded))
    }

    fn new(
        runtime: RuntimeKind,
        cluster: Option<&ClusterName>,
        id: &ResourceId,
        attributes: &Map<String, Value>,
        extensions: &Map<String, Value>,
    ) -> Option<Self> {
        match runtime {
            RuntimeKind::Kubernetes => {
                let key = object_key(attributes);
                Some(Self::Object {
                    cluster: cluster?.clone(),
                    key: [key.group, key.kind, key.namespace, key.name].map(str::to_owned),
                })
            }
            RuntimeKind::Terraform => {
                let import = extensions.get(IMPORT_ID).and_then(Value::as_str)?;
                Some(Self::Import {
                    kind: terraform_type(id, extensions)?.to_owned(),
                    id: import.to_owned(),
                })
            }
        }
    }

    /// Returns a short hash of the claim. Claims with different hashes are different.
    pub fn mark(&self) -> String {
        let parts = match self {
            Self::Object { cluster, key } => [cluster.as_str()]
                .into_iter()
                .chain(key.iter().map(String::as_str))
                .collect::<Vec<_>>(),
            Self::Import { kind, id } => vec![kind.as_str(), id.as_str()],
            Self::ObjectHash { hash } => vec![hash.as_str()],
        };
        short_hash("claim", parts)
    }
}

/// Returns the short hash of a list of parts, in the form that [`Marks`] contains.
pub(super) fn short_hash<'p>(kind: &'static str, parts: impl IntoIterator<Item = &'p str>) -> String {
    let mut builder = DigestBuilder::new(kind);
    for part in parts {
        builder.part(part.as_bytes());
    }
    builder.finish().to_string()[..Marks::LENGTH].to_owned()
}

/// The short hashes of all claims of a stack. A missing hash proves that the claim is absent; only the state can prove
/// that a claim exists.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Marks(String);

impl Marks {
    /// The number of hexadecimal digits of a short hash.
    const LENGTH: usize = 10;

    /// Creates the set of the short hashes of these claims.
    pub fn from_claims(claims: impl Iterator<Item = Claim>) -> Self {
        let mut marks: Vec<_> = claims.map(|claim| claim.mark()).collect();
        marks.sort();
        Self(marks.concat())
    }

    /// Creates a set of short hashes, without duplicates.
    pub fn from_short_hashes(hashes: impl Iterator<Item = String>) -> Self {
        let hashes: BTreeSet<_> = hashes.collect();
        Self(hashes.into_iter().collect())
    }

    /// Returns true if there are no claims.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the short hashes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let ends = (Self::LENGTH..=self.0.len()).step_by(Self::LENGTH);
        ends.filter_map(|end| self.0.get(end - Self::LENGTH..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(id: &str, runtime: RuntimeKind, attributes: Value, extensions: Value) -> Resource {
        Resource {
            extensions: extensions.as_object().unwrap().clone(),
            ..Resource::new(
                id.parse().unwrap(),
                runtime,
                attributes.as_object().unwrap().clone(),
            )
        }
    }

    #[test]
    fn one_object_is_one_claim_whatever_its_version() {
        let east = "east".parse().unwrap();
        let of = |version: &str, metadata: Value, extensions: Value| {
            let object = json!({"apiVersion": version, "kind": "Deployment", "metadata": metadata});
            Claim::of_resource(
                &resource("a", RuntimeKind::Kubernetes, object, extensions),
                Some(&east),
            )
            .unwrap()
        };
        let one = of("apps/v1", json!({"name": "web"}), json!({}));
        assert_eq!(
            one,
            of(
                "apps/v1beta1",
                json!({"name": "web", "namespace": "default"}),
                json!({})
            )
        );
        assert_ne!(
            one,
            of("apps/v1", json!({"name": "web", "namespace": "shop"}), json!({}))
        );
        assert_ne!(
            one,
            of("apps/v1", json!({"name": "web"}), json!({"cluster": "west"}))
        );
    }

    #[test]
    fn terraform_claims_only_what_it_takes_over() {
        let vpc = |extensions| {
            resource(
                "hashicorp:aws:aws_vpc:main",
                RuntimeKind::Terraform,
                json!({}),
                extensions,
            )
        };
        assert_eq!(Claim::of_resource(&vpc(json!({})), None), None);
        let taken = Claim::of_resource(&vpc(json!({IMPORT_ID: "vpc-1"})), None).unwrap();
        assert_eq!(
            taken,
            Claim::Import {
                kind: "aws_vpc".to_owned(),
                id: "vpc-1".to_owned()
            }
        );
    }

    #[test]
    fn marks_are_cut_where_they_were_joined() {
        let claim = |id: &str| Claim::Import {
            kind: "aws_vpc".to_owned(),
            id: id.to_owned(),
        };
        let marks = Marks::from_claims(["a", "b"].map(claim).into_iter());
        let all: Vec<_> = marks.iter().collect();
        assert_eq!(all.len(), 2);
        assert!(all.contains(&claim("a").mark().as_str()) && all.contains(&claim("b").mark().as_str()));
    }
}
