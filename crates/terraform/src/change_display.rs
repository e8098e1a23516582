//! Renders planned changes for reviewers.

use serde_json::{Map, Value};

use super::saved_plan::{PlannedAction, ResourceChange};
use konverge_base::model::{
    FieldPath, masked_value,
    plan::{Action, ChangeOrigin, FieldChange},
};

/// Converts Terraform's list of actions to an action.
pub(super) fn action(change: &ResourceChange, moved: bool) -> Action {
    let adopted = moved || change.change.importing.is_some();
    match change.change.actions.as_slice() {
        [PlannedAction::NoOp | PlannedAction::Read] if adopted => Action::Adopt,
        [PlannedAction::NoOp | PlannedAction::Read] => Action::Unchanged,
        [PlannedAction::Create] => Action::Create,
        [PlannedAction::Update] if change.change.importing.is_some() => Action::Adopt,
        [PlannedAction::Update] => Action::Update,
        [PlannedAction::Delete] => Action::Delete,
        [PlannedAction::Forget] => Action::Forget,
        [PlannedAction::Delete, PlannedAction::Create] | [PlannedAction::Create, PlannedAction::Delete] => {
            Action::Replace
        }
        _ => Action::Unknown,
    }
}

/// Converts Terraform's paths to RFC 6901.
pub(super) fn paths(paths: &[Vec<Value>]) -> Vec<FieldPath> {
    let mut found: Vec<_> = paths
        .iter()
        .map(|path| {
            path.iter().fold(FieldPath::root(), |path, step| match step {
                Value::String(key) => path.join(key),
                other => path.join(&other.to_string()),
            })
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Determines the origin of an attribute's change.
pub(super) struct Origins<'a> {
    /// Attributes in the Spec now.
    pub(super) desired: &'a Map<String, Value>,
    /// Attributes in the Spec at the last apply.
    pub(super) prior: Option<&'a Map<String, Value>>,
    /// The paths at which the live object differs from Terraform's state.
    pub(super) drifted: Vec<FieldPath>,
}

impl Origins<'_> {
    fn origin(&self, path: &FieldPath) -> ChangeOrigin {
        let key = path.components().next().unwrap_or_default();
        let prior = self.prior.and_then(|prior| prior.get(&key));
        let desired = self.desired.get(&key);
        if self
            .drifted
            .iter()
            .any(|drift| path.is_within(drift) || drift.is_within(path))
            && prior == desired
        {
            ChangeOrigin::Drift
        } else if desired.is_some() || prior.is_some() {
            ChangeOrigin::Change
        } else {
            ChangeOrigin::Default
        }
    }
}

/// Returns the changes between two objects that are already masked.
pub(super) fn changes(before: &Value, after: &Value, origins: &Origins<'_>) -> Vec<FieldChange> {
    let mut found = Vec::new();
    compare(
        &FieldPath::root(),
        Some(before),
        Some(after),
        &mut |path, from, to| {
            found.push(FieldChange {
                origin: origins.origin(&path),
                path,
                from: from.cloned(),
                to: to.cloned(),
            });
        },
    );
    found
}

/// Returns the paths at which two objects differ.
pub(super) fn changed_paths(before: &Value, after: &Value) -> Vec<FieldPath> {
    let mut found = Vec::new();
    compare(
        &FieldPath::root(),
        Some(before),
        Some(after),
        &mut |path, _, _| found.push(path),
    );
    found
}

type Visit<'v> = &'v mut dyn FnMut(FieldPath, Option<&Value>, Option<&Value>);

fn compare(path: &FieldPath, before: Option<&Value>, after: Option<&Value>, visit: Visit<'_>) {
    let plain = |v: &Value| v.is_object() && !masked_value::is_unknown(v) && !masked_value::is_secret(v);
    match (before, after) {
        (None, None) => {}
        (Some(b), Some(a)) if b == a => {}
        (Some(b @ Value::Object(from)), Some(a @ Value::Object(to))) if plain(b) && plain(a) => {
            let added = to.keys().filter(|key| !from.contains_key(*key));
            for key in from.keys().chain(added) {
                compare(&path.join(key), from.get(key), to.get(key), visit);
            }
        }
        (Some(Value::Array(from)), Some(Value::Array(to))) if from.len() == to.len() => {
            for (index, (b, a)) in from.iter().zip(to).enumerate() {
                compare(&path.item(index), Some(b), Some(a), visit);
            }
        }
        (from, to) => visit(path.clone(), from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_and_origins() {
        let before = json!({"name": "a", "tags": {"x/y": 1, "z": 2}, "list": [1, 2], "gone": 1, "secret": {"$secret": "0"}, "computed": "c"});
        let after = json!({"name": "b", "tags": {"x/y": 3, "z": 2}, "list": [1, 2, 3], "secret": {"$secret": "1"}, "computed": {"$unknown": true}});
        let desired = json!({"name": "b", "tags": {}, "list": [], "secret": ""});
        let prior = json!({"gone": 1, "tags": {}, "name": "a"});
        let origins = Origins {
            desired: desired.as_object().unwrap(),
            prior: prior.as_object(),
            drifted: vec!["/tags/x~1y".into()],
        };
        let mut found: Vec<_> = changes(&before, &after, &origins)
            .into_iter()
            .map(|c| (c.path, c.origin))
            .collect();
        found.sort();
        let wanted = [
            ("/computed", ChangeOrigin::Default),
            ("/gone", ChangeOrigin::Change),
            ("/list", ChangeOrigin::Change),
            ("/name", ChangeOrigin::Change),
            ("/secret", ChangeOrigin::Change),
            ("/tags/x~1y", ChangeOrigin::Drift),
        ];
        assert_eq!(found, wanted.map(|(path, origin)| (FieldPath::new(path), origin)));
    }

    #[test]
    fn verbs_become_actions() {
        let of = |actions: Value, importing: bool, moved: bool| {
            let importing = importing.then(|| json!({"id": "x"}));
            let change = json!({"address": "a.b", "change": {"actions": actions, "importing": importing}});
            action(&serde_json::from_value(change).unwrap(), moved)
        };
        assert_eq!(of(json!(["no-op"]), false, false), Action::Unchanged);
        assert_eq!(of(json!(["no-op"]), false, true), Action::Adopt);
        assert_eq!(of(json!(["update"]), true, false), Action::Adopt);
        assert_eq!(of(json!(["update"]), false, true), Action::Update);
        assert_eq!(of(json!(["create", "delete"]), false, false), Action::Replace);
        assert_eq!(of(json!(["read"]), false, false), Action::Unchanged);
        assert_eq!(of(json!(["dance"]), false, false), Action::Unknown);
        assert_eq!(paths(&[vec![json!("a/b"), json!(0)]]), ["/a~1b/0"]);
    }
}
