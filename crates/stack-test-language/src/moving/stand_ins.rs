//! Stand-ins: values that a live test provides in place of Terraform resources (`with.terraform`). The test creates
//! nothing in a cloud; references to the resource get the provided value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::MoveRefusal;
use konverge_base::model::{
    ResourceId,
    reference::Targets,
    resolve::KnownValue,
    spec::{RuntimeKind, Spec},
};

/// The provided attributes of each replaced resource.
pub type StandIns = BTreeMap<ResourceId, Map<String, Value>>;

/// Returns a Spec without the replaced resources. References to them become the provided values.
///
/// # Errors
/// A resource that is not a Terraform resource of this Spec, or a missing value for a reference.
pub fn replace_resources(spec: &Spec, values: &StandIns) -> Result<Spec, Vec<MoveRefusal>> {
    let terraform: BTreeSet<&ResourceId> = spec
        .resources
        .iter()
        .filter(|resource| resource.runtime == RuntimeKind::Terraform)
        .map(|resource| &resource.id)
        .collect();
    let unknown = values.keys().filter(|id| !terraform.contains(id));
    let mut refusals: Vec<MoveRefusal> = unknown
        .map(|id| MoveRefusal {
            id: id.clone(),
            why: "`with` replaces this resource, but the stack has no such Terraform resource".to_owned(),
        })
        .collect();
    let targets: Targets = spec.resources.iter().map(|resource| &resource.id).collect();
    let known: BTreeMap<&ResourceId, Value> = values
        .iter()
        .filter(|(id, _)| terraform.contains(id))
        .map(|(id, given)| (id, Value::Object(given.clone())))
        .collect();
    let lookup = |id: &ResourceId| known.get(id).map_or(KnownValue::Nothing, KnownValue::Final);
    let mut replaced = Spec::default();
    for resource in spec
        .resources
        .iter()
        .filter(|resource| !known.contains_key(&resource.id))
    {
        // Only references to replaced resources are resolved here. The apply resolves all others.
        match targets.resolve(&resource.attributes, &|id| !known.contains_key(id), &lookup) {
            Ok(attributes) => {
                let mut resource = resource.clone();
                resource.attributes = attributes;
                resource.depends_on.retain(|id| !known.contains_key(id));
                replaced.resources.push(resource);
            }
            Err(error) => refusals.push(MoveRefusal {
                id: resource.id.clone(),
                why: error.to_string(),
            }),
        }
    }
    refusals.sort();
    if refusals.is_empty() {
        Ok(replaced)
    } else {
        Err(refusals)
    }
}
