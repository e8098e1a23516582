//! Functions that the rules for rollouts share: the verdict of a rollout that waits for promotion, and the
//! check if the Spec itself pauses it.

use super::{
    object_view::ObjectView,
    verdict::{HealthVerdict, WaitPolicy},
};
use crate::FIELD_MANAGER;
use konverge_base::model::apply_result::{WaitReason, Waiting};

/// Returns the verdict of a rollout that waits until somebody promotes it.
pub(super) fn waits(why: &str) -> HealthVerdict {
    let why = match why {
        "" => String::new(),
        why => format!(": {why}"),
    };
    HealthVerdict::suspended(format!("paused, waits for promotion{why}")).with_wait_policy(
        WaitPolicy::Waiting(Waiting {
            reason: WaitReason::Promotion,
            until: None,
            wave: None,
        }),
    )
}

/// Returns true if the field manager of the Spec set a field, or if its manager is unknown.
pub(super) fn is_of_spec(view: &ObjectView, field: &str, manager: &str) -> bool {
    let path = field.replace('/', "/f:");
    let owners: Vec<_> = view
        .list("/metadata/managedFields")
        .filter(|entry| entry.at(&format!("/fieldsV1{path}")).is_some())
        .collect();
    // A webhook's change of an applied object is recorded as an update by the same manager, so updates of a manager
    // that applies do not count. Argo CD only updates unless configured otherwise, so the updates of a manager that
    // never applies count.
    let applied =
        |entry: &ObjectView| entry.text("/manager") == manager && entry.text("/operation") == "Apply";
    let applies =
        manager == FIELD_MANAGER || view.list("/metadata/managedFields").any(|entry| applied(&entry));
    let is_ours = |entry: &ObjectView| applied(entry) || (!applies && entry.text("/manager") == manager);
    owners.is_empty() || owners.iter().any(is_ours)
}
