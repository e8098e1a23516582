//! Replaces references to secrets by live values and stand-ins, before an object is planned.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    SECRET_PLACES,
    api::clusters::Kubernetes,
    object::{
        fetch::RawObject,
        object_record::{self, ObjectRecord},
        object_ref,
        plan_item::PlanItem,
        secret_references::{self, KnownObject},
    },
};
use konverge_base::{
    error::UserError,
    model::{FieldPath, GroupKind},
};
use konverge_engine::runtime::{Item, StackScope};
use konverge_secrets::{SecretPlaces, WrittenReferences, may_refer};

/// Replaces the references of an item. The plan item keeps the references.
pub(super) async fn stand_in(
    runtime: &Kubernetes,
    scope: &StackScope,
    item: &mut Item,
    mut subject: PlanItem,
    raw: Option<&RawObject>,
) -> Result<PlanItem, UserError> {
    subject.places = object_record::secret_places(item);
    let record = item.prior.as_ref().and_then(ObjectRecord::from_recorded);
    // Without a record of this stack, only the object's own annotation shows which of its texts are secret.
    if let (None, Some(raw)) = (&record, raw) {
        let named = named_places(&raw.read(&subject.cluster)?);
        let desired = item.desired.as_ref().map(|desired| &desired.attributes);
        subject.places = subject.places.with(named, desired);
    }
    let Some(desired) = item
        .desired
        .as_mut()
        .filter(|desired| may_refer(&desired.attributes))
    else {
        return Ok(subject);
    };
    let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
    name_places(&mut desired.attributes);
    let written = record.unwrap_or_default();
    let known = KnownObject {
        prior: item.prior.as_ref().map(|prior| (prior, &written.references)),
        live: live.as_ref(),
        ignore: &scope.ignore,
    };
    let resolver = scope.references.resolver();
    let found = secret_references::stand_in(resolver, &runtime.secrets, desired, known, |attributes| {
        if GroupKind::from_attributes(attributes) == GroupKind::SECRET {
            object_ref::string_data_to_data(attributes);
        }
    });
    subject.references = found.await?.map(Arc::new);
    Ok(subject)
}

/// Writes the paths with secret values outside a Secret's data to an annotation, for a stack that takes the
/// object over later.
fn name_places(desired: &mut Map<String, Value>) {
    let places = SecretPlaces::find(Some(desired), &WrittenReferences::new());
    let paths: Vec<_> = places.paths().collect();
    if paths.is_empty() {
        return;
    }
    let paths = json!(paths).to_string();
    object_ref::annotate(desired, SECRET_PLACES, paths);
}

/// Returns the paths with secret values that an object's annotation names.
fn named_places(live: &Value) -> Vec<FieldPath> {
    let named = object_ref::annotation(live, SECRET_PLACES);
    named
        .and_then(|paths| serde_json::from_str(paths).ok())
        .unwrap_or_default()
}
