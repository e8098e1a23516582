//! Transfers fields from one applying field manager to another, for a stack that a controller delivers from
//! now on. The controller then owns Konverge's fields, so no field is lost, and it can remove those that it
//! no longer applies.

use serde_json::{Map, Value, json};

use super::super::{
    OWNER,
    api::clusters::Kubernetes,
    object::{
        fetch, managed_fields, object_ref,
        plan_item::PlanItem,
        precondition::{self, Precondition},
    },
};
use super::field_takeover::replace_entries;
use konverge_base::{error::UserError, model::StackId};
use konverge_engine::runtime::Item;

impl Kubernetes {
    /// Makes `to` the manager of the fields that the managers in `from` apply to the live objects of a stack.
    /// Objects of other stacks stay unchanged. A second call changes nothing.
    ///
    /// # Errors
    /// A cluster cannot be reached, or refuses a write.
    pub async fn hand_over(
        &self,
        stack: &StackId,
        items: &[Item],
        from: &[&str],
        to: &str,
    ) -> Result<(), UserError> {
        for item in items {
            let subject = PlanItem::resolve(self, item).await?;
            hand_over(&subject, stack, from, to).await?;
        }
        Ok(())
    }
}

async fn hand_over(subject: &PlanItem, stack: &StackId, from: &[&str], to: &str) -> Result<(), UserError> {
    let Some(of) = subject.readable() else {
        return Ok(());
    };
    for attempt in 1.. {
        let Some(live) = fetch::get(&subject.cluster, of, &subject.name).await? else {
            return Ok(());
        };
        let is_ours = object_ref::annotation(&live, OWNER) == Some(stack.as_str());
        let Some(entries) = renamed(&live, from, to).filter(|_| is_ours) else {
            return Ok(());
        };
        let request = replace_entries(subject, of, &Precondition::from_object(&live), &entries);
        match subject.cluster.api.call(&request).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_code(404) => return Ok(()),
            Err(error) if error.is_code(409) && attempt < precondition::TRIES => {}
            Err(error) => return Err(subject.refusal(&error)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Returns the entries with `to` instead of the managers in `from`; `None` if none of these applies a field.
fn renamed(live: &Value, from: &[&str], to: &str) -> Option<Vec<Value>> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let is_theirs = |entry: &Value| from.iter().any(|name| managed_fields::is_applied_by(entry, name));
    let is_target = |entry: &Value| managed_fields::is_applied_by(entry, to);
    let first = entries.iter().find(|entry| is_theirs(entry))?;
    let both = entries
        .iter()
        .filter(|entry| is_theirs(entry) || is_target(entry));
    let sets = both.filter_map(|entry| entry["fieldsV1"].as_object());
    let fields = sets.fold(Map::new(), |all, one| managed_fields::union(&all, one));
    let mut taken = first.clone();
    taken["manager"] = json!(to);
    taken["fieldsV1"] = Value::Object(fields);
    let others = entries
        .iter()
        .filter(|entry| !is_theirs(entry) && !is_target(entry));
    Some(others.cloned().chain([taken]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_one_manager_become_those_of_another() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let [a, b] = [json!({"f:data": {"f:a": {}}}), json!({"f:data": {"f:b": {}}})];
        let edit = entry("kubectl-edit", "Update", b.clone());
        let live = json!({"metadata": {"managedFields": [entry("konverge", "Apply", a), edit, entry("flux", "Apply", b)]}});
        let both = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let found = renamed(&live, &["konverge"], "flux").unwrap();
        assert_eq!(found, [edit_entry(&live), entry("flux", "Apply", both)]);
        let again = json!({"metadata": {"managedFields": found}});
        assert_eq!(renamed(&again, &["konverge"], "flux"), None);
    }

    fn edit_entry(live: &Value) -> Value {
        live["metadata"]["managedFields"][1].clone()
    }
}
