//! The record of a Kubernetes object in the state, besides its attributes, by which a later run recognizes
//! the object.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{
    noop_detection::AppliedFingerprint, precondition::Precondition, secret_references::PlannedReferences,
    volume_expansion::Expansion,
};
use konverge_base::model::{FieldPath, state::Recorded};
use konverge_engine::runtime::Item;
use konverge_secrets::{SecretPlaces, WrittenReferences};

/// The part of a record that only the Kubernetes runtime uses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectRecord {
    /// The UID in the cluster. `None` if it is unknown whether the write succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The digests of the last apply, which prove that the same apply would change nothing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "echo_or_none")]
    pub echo: Option<AppliedFingerprint>,
    /// The references to secrets that were last written, by path.
    #[serde(skip_serializing_if = "WrittenReferences::is_empty")]
    pub references: WrittenReferences,
    /// True if the object is a Job that has completed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completed: bool,
    /// True if the object was written, but did not become ready while the run watched it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// The last run, if the object is the Job of a hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookRun>,
}

/// The run of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HookRun {
    /// The stamp of the apply for which the hook ran.
    pub stamp: String,
    /// True if the run succeeded, false if it failed; `None` while the result is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<bool>,
}

impl HookRun {
    /// Creates the record of a hook that runs only when its stack is removed.
    pub(crate) fn not_due() -> Self {
        Self {
            stamp: String::new(),
            succeeded: None,
        }
    }

    /// Returns the last run of a hook, and the UID of its Job.
    pub(crate) fn of(recorded: Option<&Recorded>) -> Option<(Self, String)> {
        let record = ObjectRecord::from_recorded(recorded?)?;
        Some((record.hook?, record.uid.unwrap_or_default()))
    }
}

impl ObjectRecord {
    /// Reads the Kubernetes part of a record. `None` if it has none, as after an import from Kusion.
    pub(crate) fn from_recorded(recorded: &Recorded) -> Option<Self> {
        recorded.private.decode()
    }

    /// Returns the recorded UID of an object.
    pub(crate) fn uid_of(recorded: &Recorded) -> Option<String> {
        Self::from_recorded(recorded)?.uid
    }

    /// Changes the Kubernetes part of a record.
    pub(crate) fn update(recorded: &mut Recorded, change: impl FnOnce(&mut Self)) {
        let mut record = Self::from_recorded(recorded).unwrap_or_default();
        change(&mut record);
        recorded.private = konverge_base::model::state::RuntimeRecord::encode(&record);
    }
}

/// Returns the paths with secret values outside a Secret's data, as desired and as last written.
pub(crate) fn secret_places(item: &Item) -> SecretPlaces {
    let record = item.prior.as_ref().and_then(ObjectRecord::from_recorded);
    let desired = item.desired.as_ref().map(|desired| &desired.attributes);
    SecretPlaces::find(desired, &record.unwrap_or_default().references)
}

/// Returns true if the earlier apply did not see the object become ready.
pub(crate) fn is_unready(recorded: &Recorded) -> bool {
    ObjectRecord::from_recorded(recorded).is_some_and(|record| record.unready)
}

/// Returns the record with or without the mark that the object is not ready yet.
pub(crate) fn mark_unready(mut recorded: Recorded, unready: bool) -> Recorded {
    // A record imported from Kusion has no Kubernetes part, and must not get one here: it would then look
    // like an intent.
    if !recorded.private.is_none() {
        ObjectRecord::update(&mut recorded, |record| record.unready = unready);
    }
    recorded
}

/// The parts of a planned write that a plan does not show. They are not masked, so they are never printed or
/// stored.
#[derive(Clone, Default)]
pub(crate) struct PreparedWrite {
    /// The object to send; `None` if nothing is sent.
    pub body: Option<Value>,
    /// True to take over fields that other managers own.
    pub force: bool,
    /// The object as the plan read it; `None` if there was none.
    pub precondition: Option<Precondition>,
    /// Fields of updating managers that Konverge takes over with the write, in the form of `managedFields`.
    pub claim: Map<String, Value>,
    /// The paths of fields outside the Spec that the write removes, because the server refuses the Spec
    /// because of them.
    pub blocking: Vec<FieldPath>,
    /// The volume claims that grow before the object is recreated.
    pub expansion: Option<Expansion>,
    /// The UID of an object that is being deleted. The write waits until that object is gone.
    pub ending: Option<String>,
    /// The references to secrets whose values are written.
    pub references: Option<Arc<PlannedReferences>>,
}

/// Deserializes the digests; an unknown form gives `None`, because it proves nothing, and the rest of the
/// record stays valid.
fn echo_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AppliedFingerprint>, D::Error> {
    Ok(AppliedFingerprint::deserialize(Value::deserialize(from)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::state::RuntimeRecord;
    use serde_json::json;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let written = json!({
            "uid": "5ef7",
            "echo": {"desired": "0".repeat(64), "live": "1".repeat(64), "guard": "v1"},
            "completed": true,
        });
        let record: ObjectRecord = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(record.echo.as_ref().unwrap().guard, "v1");
        assert!(record.completed && !record.unready);
        assert_eq!(serde_json::to_value(&record).unwrap(), written);
        assert_eq!(serde_json::to_value(ObjectRecord::default()).unwrap(), json!({}));
    }

    #[test]
    fn an_echo_of_another_form_takes_nothing_else_down() {
        for echo in [json!(null), json!("v2"), json!({"desired": 1})] {
            let record: ObjectRecord = serde_json::from_value(json!({"uid": "5ef7", "echo": echo})).unwrap();
            assert_eq!((record.uid.as_deref(), record.echo), (Some("5ef7"), None));
        }
    }

    #[test]
    fn what_kusion_recorded_has_no_part_of_ours() {
        assert_eq!(RuntimeRecord::default().decode::<ObjectRecord>(), None);
        assert!(
            RuntimeRecord::encode(&ObjectRecord::default())
                .decode::<ObjectRecord>()
                .is_some()
        );
    }
}
