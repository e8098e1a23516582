//! [`TrueValues`]: the values of a planned resource that policy sets judge. The shown plan is masked by names and
//! values that a pull request chooses, so its author could hide a violation from a rule that saw only the masked plan.

use std::fmt;

use serde_json::{Map, Value};

use konverge_base::model::{
    FieldPath,
    plan::{FieldChange, ResourcePlan},
};

/// The true values of a planned resource. Only the data of Secrets and sensitive attributes are masked, by their paths.
/// Never print or store them.
#[derive(Clone, Default)]
pub struct TrueValues {
    /// The desired attributes; `None` if they are exactly as recorded.
    pub desired: Option<Map<String, Value>>,
    /// The object before the changes; `None` if there is none, or nothing changes.
    pub before: Option<Value>,
    /// The object after the changes; `None` if there is none, or nothing changes.
    pub after: Option<Value>,
}

impl fmt::Debug for TrueValues {
    /// Prints no values: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrueValues(..)")
    }
}

impl TrueValues {
    /// Returns the plan of the resource with the true values of its changes. Its digest remains that of the shown plan.
    #[must_use]
    pub fn of_plan(&self, shown: &ResourcePlan) -> ResourcePlan {
        let changes = shown.changes.iter().map(|change| self.of_change(change));
        ResourcePlan {
            changes: changes.collect(),
            ..shown.clone()
        }
    }

    /// Returns the true values as objects, to find texts that are shown nowhere.
    pub fn objects(&self) -> impl Iterator<Item = Value> + '_ {
        let desired = self.desired.iter().map(|desired| Value::Object(desired.clone()));
        desired.chain(self.before.iter().chain(&self.after).cloned())
    }

    /// Returns the change with its true values. Masking may change the label of a list item, so that the path does not
    /// exist in the true values: then the whole list becomes the change.
    fn of_change(&self, shown: &FieldChange) -> FieldChange {
        let pairs = [(&self.before, &shown.from), (&self.after, &shown.to)];
        let leads_on = |path: &FieldPath| {
            pairs.iter().all(|(whole, shown)| match (whole, shown) {
                (Some(whole), Some(_)) => path.get_by_index(whole).is_some(),
                _ => true,
            })
        };
        let mut path = shown.path.clone();
        while !leads_on(&path) {
            path = path.split_last().map(|(outer, _)| outer).unwrap_or_default();
        }
        let value = |(whole, shown_value): (&Option<Value>, &Option<Value>)| match whole {
            Some(whole) if shown_value.is_some() || path != shown.path => path.get_by_index(whole).cloned(),
            // If the true object is gone, only the recorded value is known.
            _ => shown_value.clone(),
        };
        let [from, to] = pairs.map(value);
        FieldChange {
            path,
            from,
            to,
            origin: shown.origin.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        plan::{Action, ChangeOrigin},
        spec::RuntimeKind,
    };
    use serde_json::json;

    fn change(path: &str, from: Option<Value>, to: Option<Value>) -> FieldChange {
        FieldChange {
            path: path.into(),
            from,
            to,
            origin: ChangeOrigin::Change,
        }
    }

    fn plan(changes: Vec<FieldChange>) -> ResourcePlan {
        let (stack, id) = ("shop/dev".parse().unwrap(), "v1:Pod:shop:web".parse().unwrap());
        ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, Action::Update, changes)
    }

    #[test]
    fn each_change_has_the_values_of_its_objects() {
        let hidden = || Some(json!({"$secret": "0a"}));
        let shown = plan(vec![
            change("/env/name=TOKEN/value", hidden(), hidden()),
            change("/new", None, hidden()),
            change("/old", hidden(), None),
            change("/rules/1/to", hidden(), hidden()),
            change("/list/name=$secret:0a", None, Some(json!({"name": "$secret:0a"}))),
        ]);
        let values = TrueValues {
            desired: None,
            before: Some(
                json!({"env": [{"name": "TOKEN", "value": "a"}], "old": "b", "rules": [{}, {"to": 1}], "list": []}),
            ),
            after: Some(
                json!({"env": [{"name": "TOKEN", "value": "c"}], "new": "d", "rules": [{}, {"to": 2}], "list": [{"name": "e://f:g@h"}]}),
            ),
        };
        let found = values.of_plan(&shown);
        assert_eq!(
            found.changes,
            [
                change("/env/name=TOKEN/value", Some(json!("a")), Some(json!("c"))),
                change("/list", Some(json!([])), Some(json!([{"name": "e://f:g@h"}]))),
                change("/new", None, Some(json!("d"))),
                change("/old", Some(json!("b")), None),
                change("/rules/1/to", Some(json!(1)), Some(json!(2))),
            ]
        );
        assert_eq!(found.digest, shown.digest);
        assert_eq!(
            TrueValues::default().of_plan(&shown),
            shown,
            "nothing else is known"
        );
    }
}
