//! [`StackClaims`]: the claims and objects of the other stacks, each looked up once per run.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio::sync::OnceCell;

use crate::StateBackend;
use konverge_base::{
    error::UserError,
    model::{
        ClusterName, ResourceId, StackId,
        claim::Claim,
        spec::{ObjectKeyRef, RuntimeKind, Spec, object_key},
    },
};
use konverge_state::IndexedStates;

/// The claims and objects of the other stacks, each looked up once per run.
#[derive(Default)]
pub struct StackClaims {
    /// The claims of each stack whose inputs differ from the recorded ones; `None` for a stack that does not compile.
    pub(crate) wanted: OnceCell<Vec<(StackId, Option<SpecClaims>)>>,
    /// The stacks that record each claim, by the short hash of the claim, from the index.
    holders: OnceCell<HashMap<String, Vec<StackId>>>,
    /// The stacks that have objects in a container (a Namespace or a kind), by its short hash, from the index.
    pub(crate) inhabitants: OnceCell<Inhabitants>,
    /// The stacks that need no deleted object of another stack, as the user confirms. So their Specs need not compile.
    pub(crate) without: BTreeSet<StackId>,
}

impl StackClaims {
    /// Returns the stacks that record a claim.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn holders_of(
        &self,
        claim: &Claim,
        backend: &StateBackend,
    ) -> Result<BTreeSet<&StackId>, UserError> {
        let holders = self.holders(backend).await?;
        let object = object_of_import(claim, backend);
        let marks = [Some(claim), object.as_ref()]
            .into_iter()
            .flatten()
            .map(Claim::mark);
        Ok(marks.filter_map(|mark| holders.get(&mark)).flatten().collect())
    }

    /// Returns the stacks that record each claim, by the short hash of the claim.
    async fn holders(&self, backend: &StateBackend) -> Result<&HashMap<String, Vec<StackId>>, UserError> {
        let holders = self.holders.get_or_try_init(|| async {
            let mut holders: HashMap<String, Vec<StackId>> = HashMap::new();
            let entries = backend.states.known().await?.entries.iter();
            for (stack, entry) in entries.filter(|(_, entry)| entry.is_known()) {
                for mark in entry.marks.iter() {
                    holders.entry(mark.to_owned()).or_default().push(stack.clone());
                }
            }
            Ok::<_, UserError>(holders)
        });
        holders.await
    }

    /// Creates claims with the stacks that need no deleted object of another stack.
    pub fn without(stacks: impl IntoIterator<Item = StackId>) -> Self {
        Self {
            without: stacks.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The stacks that have objects in each Namespace and of each custom kind, from the index.
#[derive(Default)]
pub(crate) struct Inhabitants {
    pub(crate) by_container: HashMap<String, Vec<StackId>>,
    /// The stacks whose index entry was written by an earlier version, which lists no containers.
    pub(crate) unknown: Vec<StackId>,
}

impl Inhabitants {
    pub(crate) fn from_index(known: &IndexedStates) -> Self {
        let mut found = Self::default();
        for (stack, entry) in known.entries.iter().filter(|(_, entry)| entry.is_known()) {
            match &entry.places {
                None => found.unknown.push(stack.clone()),
                Some(places) => {
                    for mark in places.iter() {
                        let stacks = found.by_container.entry(mark.to_owned()).or_default();
                        stacks.push(stack.clone());
                    }
                }
            }
        }
        found
    }
}

/// The objects and Terraform resources that a Spec wants, in a form that can be compared with other stacks.
#[derive(Default)]
pub(crate) struct SpecClaims {
    /// The namespaces as written in the Spec, by cluster, group, kind and name.
    objects: HashMap<[String; 4], Vec<String>>,
    pub(crate) terraform: HashSet<ResourceId>,
}

impl SpecClaims {
    pub(crate) fn from_spec(spec: &Spec, cluster: Option<&ClusterName>) -> Self {
        let mut wants = Self::default();
        for resource in &spec.resources {
            if resource.runtime == RuntimeKind::Terraform {
                wants.terraform.insert(resource.id.clone());
                continue;
            }
            let own = resource.extensions.get("cluster").and_then(|name| name.as_str());
            let cluster = own.or(cluster.map(ClusterName::as_str));
            let object = object_key(&resource.attributes);
            let cluster = cluster.unwrap_or_default();
            let key = [cluster, object.group, object.kind, object.name].map(str::to_owned);
            let namespaces = wants.objects.entry(key).or_default();
            namespaces.push(object.namespace.to_owned());
        }
        wants
    }

    /// Returns true if the Spec has an object. The key must be normalized: it has a namespace if and only if the kind
    /// is namespaced.
    pub(crate) fn holds(&self, cluster: Option<&ClusterName>, key: ObjectKeyRef<'_>) -> bool {
        let cluster = cluster.map(ClusterName::as_str).unwrap_or_default();
        let written = [cluster, key.group, key.kind, key.name].map(str::to_owned);
        let written = self.objects.get(&written);
        let same = |written: &String| match written.as_str() {
            "" => matches!(key.namespace, "" | "default"),
            written => key.namespace.is_empty() || written == key.namespace,
        };
        written.is_some_and(|written| written.iter().any(same))
    }
}

/// Returns the claim by which the stack that created an imported object records it: a hash of the object's id. `None`
/// for any other claim.
pub(crate) fn object_of_import(claim: &Claim, backend: &StateBackend) -> Option<Claim> {
    match claim {
        Claim::Import { kind, id } => {
            let hash = backend.secrets.hash(Claim::hashed_text(kind, id).as_bytes());
            Some(Claim::ObjectHash { hash })
        }
        Claim::Object { .. } | Claim::ObjectHash { .. } => None,
    }
}
