//! Takes over fields from managers that updated the object, before an apply.

use serde_json::{Map, Value, json};

use super::super::{
    FIELD_MANAGER,
    api::{client::ApiRequest, discovery::ResourceType},
    object::{
        managed_fields::{self, FieldsEntry},
        plan_item::PlanItem,
        precondition::{self, Precondition, WriteKind},
    },
};
use konverge_base::{error::UserError, model::FieldPath};

/// The fields that Konverge takes over before an apply.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// Fields of updating managers, in the form of `managedFields`.
    pub fields: &'a Map<String, Value>,
    /// The paths of fields that the apply removes with everything below them, even if nobody owns them.
    pub blocking: &'a [FieldPath],
}

/// Removes the claimed fields from the managers that updated the object, and gives them to Konverge in the
/// same write, so that a kill before the apply leaves no field without an owner.
pub(crate) async fn take_over(
    subject: &PlanItem,
    of: &ResourceType,
    seen: Precondition,
    doing: WriteKind<'_>,
    claim: Claim<'_>,
) -> Result<Precondition, UserError> {
    if claim.fields.is_empty() && claim.blocking.is_empty() {
        return Ok(seen);
    }
    for attempt in 1.. {
        let live = precondition::read_again(subject, of).await?;
        let now = seen.check_current(&live, subject, doing)?;
        let Some(entries) = transferred(&live, claim, &of.api_version()) else {
            return Ok(now);
        };
        let request = replace_entries(subject, of, &now, &entries);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => return Ok(Precondition::from_object(&answer.value)),
            Err(error) if error.is_code(409) && attempt < precondition::TRIES => {}
            Err(error) => return Err(subject.refusal(&error)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Returns the patch that replaces all entries of `managedFields`. So it must fail if the object or its version is no
/// longer the one that was read.
pub(super) fn replace_entries(
    subject: &PlanItem,
    of: &ResourceType,
    read: &Precondition,
    entries: &[Value],
) -> ApiRequest {
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": read.uid},
        {"op": "add", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": read.version},
    ]);
    ApiRequest::patch(subject.name.path(of), "application/json-patch+json", &patch).bound()
}

/// Returns the entries of `managedFields` after a claim; `None` if no owner changes.
fn transferred(live: &Value, claim: Claim<'_>, api_version: &str) -> Option<Vec<Value>> {
    let entries = live["metadata"]["managedFields"].as_array();
    let mut kept = Vec::new();
    let mut moved = blocking_fields(live, claim.blocking);
    let claim = &claimed_of_updates(live, claim);
    let is = |entry: &Value, operation: &str| {
        entry["operation"] == operation && entry["subresource"].as_str().unwrap_or_default().is_empty()
    };
    for entry in entries.into_iter().flatten() {
        // Managers that apply, and writers of subresources, keep their fields.
        let Some(theirs) = entry["fieldsV1"].as_object().filter(|_| is(entry, "Update")) else {
            kept.push(entry.clone());
            continue;
        };
        moved = managed_fields::union(&moved, &managed_fields::intersection(theirs, claim));
        let left = managed_fields::subtract(theirs, claim);
        if !left.is_empty() {
            let mut entry = entry.clone();
            entry["fieldsV1"] = Value::Object(left);
            kept.push(entry);
        }
    }
    if entries.is_none_or(Vec::is_empty) {
        // If no owner were left for the existing fields, the server would invent one (`before-first-apply`).
        moved = managed_fields::union(&moved, claim);
    }
    if moved.is_empty() {
        return None;
    }
    let is_unchanged = entries.is_some_and(|entries| *entries == kept);
    let mut ours = kept
        .iter_mut()
        .filter(|entry| managed_fields::is_applied_by(entry, FIELD_MANAGER));
    match ours.next() {
        Some(ours) => {
            let had = ours["fieldsV1"].as_object().cloned().unwrap_or_default();
            let has = managed_fields::union(&had, &moved);
            if is_unchanged && has == had {
                return None;
            }
            ours["fieldsV1"] = Value::Object(has);
        }
        None => kept.push(json!({
            "manager": FIELD_MANAGER,
            "operation": "Apply",
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": moved,
        })),
    }
    Some(kept)
}

/// Returns the blocking fields that still exist, each with everything below it.
fn blocking_fields(live: &Value, paths: &[FieldPath]) -> Map<String, Value> {
    let fields = paths
        .iter()
        .filter_map(|path| managed_fields::whole_field(live, path));
    fields.fold(Map::new(), |all, field| managed_fields::union(&all, &field))
}

/// Returns the fields that updating managers lose: the claimed ones, and everything at and below the blocking
/// ones.
fn claimed_of_updates(live: &Value, claim: Claim<'_>) -> Map<String, Value> {
    let mut fields = claim.fields.clone();
    for entry in managed_fields::entries(live).filter(FieldsEntry::is_update) {
        let theirs = claim.blocking.iter();
        for theirs in theirs.filter_map(|path| managed_fields::fields_below(entry.fields, live, path)) {
            fields = managed_fields::union(&fields, &theirs);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn of_fields(fields: &Value) -> Claim<'_> {
        Claim {
            fields: fields.as_object().unwrap(),
            blocking: &[],
        }
    }

    #[test]
    fn what_a_manager_that_updates_gives_up_becomes_ours() {
        let live = json!({"metadata": {"name": "c", "managedFields": [
            entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
            entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}, "f:c": {}}}))]}});
        let claim = json!({"f:data": {"f:b": {}}});
        let entries = transferred(&live, of_fields(&claim), "v1").unwrap();
        assert_eq!(
            entries,
            [
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}})),
                entry("kubectl-edit", "Update", json!({"f:data": {"f:c": {}}})),
            ]
        );
    }

    #[test]
    fn an_object_without_managers_gets_ours_alone() {
        let claim = json!({"f:data": {"f:a": {}}});
        let live = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        let entries = transferred(&live, of_fields(&claim), "v1").unwrap();
        assert_eq!(entries, [entry(FIELD_MANAGER, "Apply", claim.clone())]);
    }
    #[test]
    fn a_blocking_field_becomes_ours_as_a_whole() {
        let item = |fields: Value| json!({"f:spec": {"f:ports": {"k:{\"port\":8181,\"protocol\":\"TCP\"}": fields}}});
        let patched = entry(
            "kubectl-patch",
            "Update",
            item(json!({".": {}, "f:port": {}, "f:name": {}})),
        );
        let live = json!({"metadata": {"managedFields": [entry(FIELD_MANAGER, "Apply", json!({"f:data": {}})), patched]},
            "spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}, "ports": [{"port": 8181, "protocol": "TCP", "name": "web"}]}});
        let paths = ["/spec/ports/port=8181", "/spec/strategy/rollingUpdate"].map(FieldPath::new);
        let claim = Claim {
            fields: &Map::new(),
            blocking: &paths,
        };
        let entries = transferred(&live, claim, "v1").unwrap();
        let [ours] = &entries[..] else {
            panic!("{entries:?}")
        };
        assert_eq!(
            ours["fieldsV1"],
            json!({"f:data": {}, "f:spec": {"f:ports": {"k:{\"port\":8181,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
                "f:strategy": {"f:rollingUpdate": {".": {}}}}})
        );
        let again = json!({"metadata": {"managedFields": entries}, "spec": live["spec"]});
        assert_eq!(transferred(&again, claim, "v1"), None);
    }
}
