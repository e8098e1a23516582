//! Masks a plan with the secrets that came through references. Plans and records contain only the keyed hash of such a
//! value.

use std::sync::Arc;

use serde_json::Map;

use crate::runtime::PlannedResource;
use konverge_base::model::{StackId, spec::Resource};
use konverge_secrets::{PropagatedSecrets, Secrets};

/// Masks every text of a plan that contains one of the secrets, in the public plan and in the record. The values
/// that are sent to the server stay unchanged.
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
        // Policy sets also judge values that came through a reference. The record is masked now, so the true form
        // is kept separately for them.
        if before != recorded.attributes {
            planned.truth.desired.get_or_insert_with(|| Map::clone(&before));
        }
    }
    let prior = planned.item.prior.as_ref();
    if let Some(changes) = carried.hide_changes(&planned.public.changes, prior, wanted, secrets) {
        planned.public = planned.public.with_changes(stack, changes);
    }
}
