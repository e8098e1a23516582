//! Jobs that are over: one that completed may be taken away by its own time to live, and is not done once more for that.

use serde_json::Value;

use crate::model::state::Recorded;

/// Where a record says that its Job completed.
const COMPLETED: &str = "completed";

/// Whether an object is a Job that has completed.
pub(super) fn has_completed(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut complete = conditions.filter(|condition| condition["type"] == "Complete");
    object["kind"] == "Job" && complete.any(|condition| condition["status"] == "True")
}

/// Puts down that it has.
pub(super) fn note(recorded: &mut Recorded, object: &Value) {
    if has_completed(object) {
        recorded.private[COMPLETED] = Value::Bool(true);
    }
}

/// Whether what was recorded is a Job that completed and was to go by itself then.
pub(super) fn went_by_itself(prior: &Recorded) -> bool {
    let spec = prior.attributes.get("spec");
    let lives_on = spec.is_none_or(|spec| spec["ttlSecondsAfterFinished"].is_null());
    prior.private[COMPLETED] == true && !lives_on
}
