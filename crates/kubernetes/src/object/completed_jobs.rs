//! Completed Jobs. A Job with a time to live is deleted after its completion, and must not run again for that
//! reason.

use serde_json::Value;

use super::super::api::discovery::items;
use super::object_record::{HookRun, ObjectRecord};
use konverge_base::model::{GroupKind, state::Recorded};

/// Returns true if an object is a Job that has completed.
pub(crate) fn has_completed(object: &Value) -> bool {
    GroupKind::from_object(object) == GroupKind::JOB && has_condition(object, "Complete")
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = items(&object["status"]["conditions"]);
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Records that the object is a completed Job.
pub(crate) fn note(recorded: &mut Recorded, object: &Value) {
    if has_completed(object) {
        ObjectRecord::update(recorded, |record| record.completed = true);
    }
}

/// Returns true if the Job has failed for good.
pub(crate) fn has_failed(object: &Value) -> bool {
    has_condition(object, "Failed")
}

/// Returns true if the record is of a Job that may be missing: it completed and has a time to live, or is a
/// hook that succeeded, or a hook that runs when its stack is removed.
pub(crate) fn may_be_gone(prior: &Recorded) -> bool {
    let of_hook = HookRun::of(Some(prior));
    expired_by_ttl(prior)
        || of_hook.is_some_and(|(run, _)| run.succeeded == Some(true) || run == HookRun::not_due())
}

/// Returns true if the record is of a completed Job with a time to live.
pub(crate) fn expired_by_ttl(prior: &Recorded) -> bool {
    if GroupKind::from_attributes(&prior.attributes) != GroupKind::JOB {
        return false;
    }
    let spec = prior.attributes.get("spec");
    let lives_on = spec.is_none_or(|spec| spec["ttlSecondsAfterFinished"].is_null());
    !lives_on && ObjectRecord::from_recorded(prior).is_some_and(|record| record.completed)
}
