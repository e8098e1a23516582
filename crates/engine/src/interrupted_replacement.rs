//! Replacements that an earlier run started and did not complete. The old object is gone, so the runtime plans a
//! creation, for which there is no review. The plan shows it as the rest of the replacement, which was reviewed.

use std::collections::BTreeMap;

use serde_json::json;

use crate::runtime::PlannedResource;
use konverge_base::{
    model::{
        ResourceId, StackId,
        digest::canonical_json,
        plan::{Action, ResourcePlan},
        state::Replacement,
    },
    secrets::Secrets,
};

/// Returns the replacement of a plan in the form that is recorded before the old object is deleted.
pub(super) fn replacement(planned: &PlannedResource, secrets: &Secrets) -> Option<Replacement> {
    let public = &planned.public;
    let wanted = desired_digest(planned, secrets).filter(|_| public.action == Action::Replace)?;
    Some(Replacement {
        wanted,
        changes: public.changes.clone(),
        paths: public.replace.clone(),
    })
}

/// Turns a planned creation into the rest of an approved replacement if the desired resource is still the same. Returns
/// any other plan unchanged.
pub(super) fn as_approved_replacement(
    begun: &BTreeMap<ResourceId, Replacement>,
    stack: &StackId,
    mut planned: PlannedResource,
    secrets: &Secrets,
) -> PlannedResource {
    let begun = begun.get(&planned.item.id).filter(|begun| {
        planned.public.action == Action::Create
            && desired_digest(&planned, secrets).as_ref() == Some(&begun.wanted)
    });
    if let Some(begun) = begun {
        let public = planned.public;
        let whole = ResourcePlan::new(
            stack,
            public.id,
            public.runtime,
            Action::Replace,
            begun.changes.clone(),
        );
        let mut notes = public.notes;
        notes.push(Replacement::REST.to_owned());
        planned.public = ResourcePlan {
            cluster: public.cluster,
            validated: public.validated,
            replace: begun.paths.clone(),
            notes,
            ..whole
        };
    }
    planned
}

/// Returns the digest of the desired resource. It is keyed, because the resource may contain secrets.
fn desired_digest(planned: &PlannedResource, secrets: &Secrets) -> Option<String> {
    let desired = planned.item.desired.as_ref()?;
    let wanted = json!([desired.attributes, desired.extensions]);
    Some(secrets.hash(canonical_json(&wanted).as_bytes()))
}
