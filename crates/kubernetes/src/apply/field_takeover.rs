//! Takes fields over from the managers that have updated them, before an apply that makes them ours.

use http::Method;
use serde_json::{Map, Value, json};

use super::super::{
    FIELD_MANAGER,
    api::{client::ApiRequest, discovery::ResourceType},
    object::{
        fetch, managed_fields,
        plan_item::PlanItem,
        precondition::{self, Precondition, WriteKind},
    },
};
use konverge_base::error::UserError;

/// Removes the claimed fields from the managers that updated the object, and makes them ours in the same
/// write: a kill before the following apply leaves none of them without an owner.
pub(crate) async fn take_over(
    subject: &PlanItem,
    of: &ResourceType,
    seen: Precondition,
    doing: WriteKind<'_>,
    claim: &Map<String, Value>,
) -> Result<Precondition, UserError> {
    if claim.is_empty() {
        return Ok(seen);
    }
    let path = of.object(subject.name.namespace(), &subject.name.name);
    for attempt in 1.. {
        let live = fetch::get(&subject.cluster, of, &subject.name).await?;
        let live = live.ok_or_else(|| precondition::another_object(subject, "it is gone"))?;
        let now = seen.check_current(&live, subject, doing)?;
        let Some(entries) = transferred(&live, claim, &of.api_version()) else {
            return Ok(now);
        };
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": now.uid},
            {"op": "add", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": now.version},
        ]);
        let mut request = ApiRequest::get(path.clone()).body("application/json-patch+json", &patch);
        (request.method, request.bound) = (Method::PATCH, true);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => return Ok(Precondition::from_object(&answer.value)),
            Err(error) if error.is_code(409) && attempt < precondition::TRIES => {}
            Err(error) => return Err(subject.refusal(&error)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// The entries after a claim; `None` if no updating manager owns anything of it.
fn transferred(live: &Value, claim: &Map<String, Value>, api_version: &str) -> Option<Vec<Value>> {
    let entries = live["metadata"]["managedFields"].as_array();
    let mut kept = Vec::new();
    let mut moved = Map::new();
    let is = |entry: &Value, operation: &str| {
        entry["operation"] == operation && entry["subresource"].as_str().unwrap_or_default().is_empty()
    };
    for entry in entries.into_iter().flatten() {
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
        // Otherwise the server would invent an owner for the existing fields (`before-first-apply`).
        moved = claim.clone();
    }
    if moved.is_empty() {
        return None;
    }
    let mut ours = kept
        .iter_mut()
        .filter(|entry| entry["manager"] == FIELD_MANAGER && is(entry, "Apply"));
    match ours.next() {
        Some(ours) => {
            let had = ours["fieldsV1"].as_object().cloned().unwrap_or_default();
            ours["fieldsV1"] = Value::Object(managed_fields::union(&had, &moved));
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
#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn what_a_manager_that_updates_gives_up_becomes_ours() {
        let live = json!({"metadata": {"name": "c", "managedFields": [
            entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
            entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}, "f:c": {}}}))]}});
        let claim = json!({"f:data": {"f:b": {}}});
        let entries = transferred(&live, claim.as_object().unwrap(), "v1").unwrap();
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
        let entries = transferred(&live, claim.as_object().unwrap(), "v1").unwrap();
        assert_eq!(entries, [entry(FIELD_MANAGER, "Apply", claim.clone())]);
    }
}
