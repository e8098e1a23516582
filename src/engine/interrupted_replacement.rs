//! Replacements that an earlier run began and did not bring to their end: the old object is gone, and what a runtime
//! plans is a mere creation, which nobody agreed to. It is shown as what it is the rest of.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    model::{
        ResourceId, StackId,
        digest::canonical_json,
        plan::{Action, ResourcePlan},
        state::Replacement,
    },
    runtime::PlannedResource,
    secrets::Secrets,
};

/// The replacement that a plan is, as it is written down before its old object goes.
pub(super) fn replacement(planned: &PlannedResource, secrets: &Secrets) -> Option<Replacement> {
    let public = &planned.public;
    let wanted = desired_digest(planned, secrets).filter(|_| public.action == Action::Replace)?;
    Some(Replacement {
        wanted,
        changes: public.changes.clone(),
        paths: public.replace.clone(),
    })
}

/// A plan, as the rest of what was agreed to if it is that: the same must be wanted now.
pub(super) fn as_agreed(
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

/// Over what is wanted of a resource; keyed, since it may hold secrets.
fn desired_digest(planned: &PlannedResource, secrets: &Secrets) -> Option<String> {
    let desired = planned.item.desired.as_ref()?;
    let wanted = json!([desired.attributes, desired.extensions]);
    Some(secrets.hash(canonical_json(&wanted).as_bytes()))
}
