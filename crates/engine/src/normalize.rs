//! Normalizes resources with their runtimes before the graph is built, and updates the ids that this changes.

use std::collections::{BTreeMap, HashMap};

use super::RuntimeRegistry;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId,
        reference::Targets,
        spec::{Resource, RuntimeKind, Spec},
    },
};

/// Normalized resources in the order of the Spec. `dependsOn` and references use the new ids.
pub(super) struct NormalizedResources {
    pub resources: Vec<Resource>,
    /// The id of each resource in the Spec.
    pub old_ids: Vec<ResourceId>,
}

/// Normalizes the resources with their runtimes. Each cluster's Kubernetes resources are normalized separately, because
/// clusters differ in the kinds that they serve.
pub(super) async fn prepare(
    spec: Spec,
    cluster: Option<&ClusterName>,
    runtimes: &RuntimeRegistry,
) -> Result<NormalizedResources, UserError> {
    let mut prepared: HashMap<ResourceId, Resource> = HashMap::new();
    let mut groups: BTreeMap<(RuntimeKind, Option<ClusterName>), Vec<Resource>> = BTreeMap::new();
    let old_ids: Vec<_> = spec.resources.iter().map(|r| r.id.clone()).collect();
    for resource in spec.resources {
        let own_cluster = super::resource_cluster::cluster_of(&resource, cluster)?;
        groups
            .entry((resource.runtime, own_cluster))
            .or_default()
            .push(resource);
    }
    for ((kind, own_cluster), mine) in groups {
        prepared.extend(runtimes.get(kind)?.prepare(own_cluster.as_ref(), mine).await?);
    }
    let mut resources = Vec::with_capacity(old_ids.len());
    for id in &old_ids {
        let resource = prepared.remove(id).ok_or_else(|| {
            UserError::new(
                ErrorKind::Spec,
                format!("the id `{id}` occurs more than once in the Spec"),
            )
            .hint("give each resource an id of its own")
        })?;
        resources.push(resource);
    }
    let names: HashMap<_, _> = old_ids
        .iter()
        .zip(&resources)
        .filter(|(old, resource)| **old != resource.id)
        .map(|(old, resource)| (old.clone(), resource.id.clone()))
        .collect();
    if !names.is_empty() {
        rename_references(&mut resources, &old_ids, &names)?;
    }
    Ok(NormalizedResources { resources, old_ids })
}

fn rename_references(
    resources: &mut [Resource],
    old_ids: &[ResourceId],
    names: &HashMap<ResourceId, ResourceId>,
) -> Result<(), UserError> {
    let targets: Targets = old_ids.iter().chain(names.values()).collect();
    for resource in resources {
        for dependency in &mut resource.depends_on {
            if let Some(name) = names.get(dependency) {
                *dependency = name.clone();
            }
        }
        resource.attributes = targets.rename(&resource.attributes, names).map_err(|error| {
            UserError::from_error(ErrorKind::Spec, error).context(format!("in `{}`", resource.id))
        })?;
    }
    Ok(())
}
