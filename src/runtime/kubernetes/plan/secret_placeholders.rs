//! Puts live values and stand-ins in the places of references to secrets, before an object is planned.

use std::sync::Arc;

use crate::{
    error::UserError,
    runtime::{
        Item, StackScope,
        kubernetes::{
            api::clusters::Kubernetes,
            object::{
                fetch::RawObject,
                object_record::{self, ObjectRecord},
                object_ref,
                plan_item::PlanItem,
                secret_references::{self, KnownObject},
            },
        },
    },
    secrets::may_refer,
};

/// Replaces the references of an item. The plan item keeps what they were.
pub(super) async fn stand_in(
    runtime: &Kubernetes,
    scope: &StackScope,
    item: &mut Item,
    mut subject: PlanItem,
    raw: Option<&RawObject>,
) -> Result<PlanItem, UserError> {
    subject.places = object_record::secret_places(item);
    let Some(desired) = item
        .desired
        .as_mut()
        .filter(|desired| may_refer(&desired.attributes))
    else {
        return Ok(subject);
    };
    let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
    let written = item
        .prior
        .as_ref()
        .and_then(ObjectRecord::from_recorded)
        .unwrap_or_default();
    let known = KnownObject {
        stack: &scope.stack,
        prior: item.prior.as_ref().map(|prior| (prior, &written.references)),
        live: live.as_ref(),
    };
    let resolver = runtime.references.as_deref();
    let found = secret_references::stand_in(resolver, &runtime.secrets, desired, known, |attributes| {
        if object_ref::text(attributes, "kind") == "Secret"
            && object_ref::text(attributes, "apiVersion") == "v1"
        {
            object_ref::string_data_to_data(attributes);
        }
    });
    subject.references = found.await?.map(Arc::new);
    Ok(subject)
}
