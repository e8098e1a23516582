//! Masks a plan with the secrets that came through references. Everywhere only the keyed hash is shown and recorded.

use std::sync::Arc;

use serde_json::Map;

use crate::runtime::PlannedResource;
use konverge_base::model::{StackId, spec::Resource};
use konverge_secrets::{PropagatedSecrets, Secrets};

/// Masks every text of a plan that contains one of the values, in what is shown and in what is recorded.
/// What is sent stays unchanged.
pub(super) fn hide(
    carried: &PropagatedSecrets,
    stack: &StackId,
    planned: &mut PlannedResource,
    wanted: Option<&Resource>,
    secrets: &Secrets,
) {
    if let Some(recorded) = &mut planned.recorded {
        let before = Arc::clone(&recorded.attributes);
        carried.hide_recorded(recorded, wanted, secrets);
        // The recorded form is masked now. Rules also judge values that came through a reference, so the true form
        // is kept for them.
        if before != recorded.attributes {
            planned.truth.desired.get_or_insert_with(|| Map::clone(&before));
        }
    }
    let prior = planned.item.prior.as_ref();
    if let Some(changes) = carried.hide_changes(&planned.public.changes, prior, wanted, secrets) {
        planned.public = planned.public.with_changes(stack, changes);
    }
}
