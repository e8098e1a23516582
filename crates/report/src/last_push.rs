//! The changes that a push made to the plan, by resource: edited, added and reverted. An edited value is shown as one
//! change, and not as a removed and an added one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{diff, yaml_text};
use konverge_base::model::{
    FieldPath, ResourceId, StackId, diff as values, plan::Action, review::ReviewUnit,
    review_difference::ReviewDifference,
};

/// The change of one resource by the last push.
pub(super) struct PushedChange<'a> {
    pub stack: &'a StackId,
    pub resource: &'a ResourceId,
    /// The action in the present plan; `None` if the resource no longer changes.
    now: Option<Action>,
    /// The action in the earlier plan; `None` if the resource did not change there.
    before: Option<Action>,
    pub fields: Vec<EditedField>,
}

/// A field of a resource that a push changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EditedField {
    /// The path, with the present value if that is short.
    pub is: String,
    /// The value in the earlier plan, if it is short.
    pub was: Option<String>,
}

impl PushedChange<'_> {
    /// Returns the word for the change: edited, changed, added or reverted.
    pub(crate) fn word(&self) -> &'static str {
        match (self.before, self.now) {
            (Some(_), Some(_)) => "edited",
            (None, Some(Action::Update)) => "changed",
            (None, _) => "added",
            (Some(_), None) => "reverted",
        }
    }

    /// Returns true if only some values of the resource were edited.
    pub(crate) fn is_of_values(&self) -> bool {
        self.now.is_some() && !self.fields.is_empty()
    }

    /// Returns the present action, or the earlier one if the change was reverted.
    pub(crate) fn action(&self) -> Action {
        self.now.or(self.before).unwrap_or(Action::Unchanged)
    }

    /// Returns the action in the earlier plan if it differs from the present one.
    pub(crate) fn other_action(&self) -> Option<Action> {
        self.before
            .filter(|before| self.now.is_some_and(|now| now != *before))
    }
}

type Units<'a> = BTreeMap<(&'a StackId, &'a ResourceId), Vec<&'a ReviewUnit>>;

fn by_resource(units: &[ReviewUnit]) -> Units<'_> {
    let mut found = Units::new();
    for unit in units {
        found.entry((&unit.stack, &unit.resource)).or_default().push(unit);
    }
    found
}

/// Returns the changes of the last push, by stack and resource.
pub(super) fn changes(difference: &ReviewDifference) -> Vec<PushedChange<'_>> {
    let (added, removed) = (by_resource(&difference.added), by_resource(&difference.removed));
    let keys: BTreeSet<_> = added.keys().chain(removed.keys()).copied().collect();
    let mut changes = Vec::with_capacity(keys.len());
    for (stack, resource) in keys {
        let [now, before] =
            [&added, &removed].map(|units| units.get(&(stack, resource)).map_or(&[][..], Vec::as_slice));
        changes.push(PushedChange {
            stack,
            resource,
            now: now.first().map(|unit| unit.action),
            before: before.first().map(|unit| unit.action),
            fields: fields(now, before),
        });
    }
    changes
}

/// Returns the fields of the present plan, each with its earlier value if it was planned before. For a reverted change,
/// returns the earlier fields.
fn fields(now: &[&ReviewUnit], before: &[&ReviewUnit]) -> Vec<EditedField> {
    let earlier = |path: &FieldPath| before.iter().find(|unit| unit.path == *path);
    if now.is_empty() {
        let gone = before.iter().filter(|unit| !unit.path.is_root());
        return gone
            .map(|unit| field(&unit.path, unit.to.as_ref(), None))
            .collect();
    }
    let mut fields = Vec::new();
    for unit in now {
        match (earlier(&unit.path), unit.path.is_root()) {
            // Both values are whole objects, so only their differences are shown.
            (Some(old), true) => {
                let (Some(from), Some(to)) = (&old.to, &unit.to) else {
                    continue;
                };
                let differences = values::differences(from, to);
                // A masked value counts as one value, so the keys of its marker are removed from the paths.
                let paths = differences
                    .iter()
                    .filter_map(|edit| edit.path.as_str().split("/$").next());
                fields.extend(paths.map(|path| {
                    let at = FieldPath::new(path);
                    field(&at, at.get(to), Some(at.get(from)))
                }));
            }
            (None, true) => {}
            (old, false) => {
                let old = old.map(|old| old.to.as_ref());
                fields.push(field(&unit.path, unit.to.as_ref(), old));
            }
        }
    }
    fields
}

/// Returns a field with its value, and with the earlier value if there is an earlier plan of the field.
fn field(path: &FieldPath, to: Option<&Value>, was: Option<Option<&Value>>) -> EditedField {
    let path = diff::dotted(path);
    let is = match to {
        None => format!("{path} removed"),
        Some(value) => {
            yaml_text::short_scalar(value).map_or_else(|| path.clone(), |value| format!("{path} = {value}"))
        }
    };
    let was = match was {
        Some(Some(value)) => yaml_text::short_scalar(value),
        Some(None) => Some("absent".to_owned()),
        None => None,
    };
    EditedField { is, was }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn unit(resource: &str, action: Action, path: &str, to: Option<Value>) -> ReviewUnit {
        ReviewUnit {
            stack: "web/dev".parse().unwrap(),
            resource: format!("v1:ConfigMap:ns:{resource}").parse().unwrap(),
            action,
            path: path.into(),
            to,
            from: None,
        }
    }

    #[test]
    fn an_edited_value_is_one_change() {
        let object = |level: &str| Some(json!({"data": {"level": level, "color": "green"}}));
        let difference = ReviewDifference {
            earlier: "a".repeat(40).parse().unwrap(),
            added: vec![
                unit("new", Action::Create, "", object("debug")),
                unit("scaled", Action::Update, "/data/n", Some(json!(3))),
                unit("fresh", Action::Update, "/data/n", None),
            ],
            removed: vec![
                unit("new", Action::Create, "", object("info")),
                unit("scaled", Action::Update, "/data/n", Some(json!(2))),
                unit("old", Action::Delete, "", None),
            ],
            incomparable: Vec::new(),
        };
        let said: Vec<_> = changes(&difference)
            .iter()
            .map(|change| {
                let fields = change.fields.iter();
                let fields: Vec<_> = fields
                    .map(|field| format!("{} (was {})", field.is, field.was.as_deref().unwrap_or("-")))
                    .collect();
                format!("{} {}: {}", change.word(), change.resource, fields.join(", "))
            })
            .collect();
        assert_eq!(
            said,
            [
                "changed v1:ConfigMap:ns:fresh: data.n removed (was -)",
                "edited v1:ConfigMap:ns:new: data.level = debug (was info)",
                "reverted v1:ConfigMap:ns:old: ",
                "edited v1:ConfigMap:ns:scaled: data.n = 3 (was 2)",
            ]
        );
    }
}
