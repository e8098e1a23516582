//! A saved plan as `terraform show -json` tells it, format version 1
//! (<https://developer.hashicorp.com/terraform/internals/json-format>).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::TerraformError;

/// The parts of a plan that are read.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SavedPlan {
    format_version: String,
    /// What would happen, no-ops included.
    #[serde(default)]
    pub(super) resource_changes: Vec<ResourceChange>,
    /// How the outside differs from the state.
    #[serde(default)]
    pub(super) resource_drift: Vec<ResourceChange>,
    #[serde(default)]
    prior_state: Option<PriorState>,
}

/// What would happen to one object.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResourceChange {
    pub(super) address: String,
    #[serde(default)]
    pub(super) mode: String,
    /// Of an object left over from a replacement that went wrong.
    #[serde(default)]
    pub(super) deposed: Option<String>,
    pub(super) change: PlannedChange,
    #[serde(default)]
    pub(super) action_reason: Option<String>,
}

/// The change itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PlannedChange {
    pub(super) actions: Vec<PlannedAction>,
    #[serde(default)]
    pub(super) before: Value,
    #[serde(default)]
    pub(super) after: Value,
    /// `true` where the value is known after apply.
    #[serde(default)]
    pub(super) after_unknown: Value,
    /// `true` where the value is sensitive.
    #[serde(default)]
    pub(super) before_sensitive: Value,
    #[serde(default)]
    pub(super) after_sensitive: Value,
    /// The paths that force a replacement.
    #[serde(default)]
    pub(super) replace_paths: Vec<Vec<Value>>,
    /// The object is taken over.
    #[serde(default)]
    pub(super) importing: Option<Value>,
}

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlannedAction {
    NoOp,
    Create,
    Read,
    Update,
    Delete,
    Forget,
    /// One that a newer Terraform knows.
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Deserialize)]
struct PriorState {
    #[serde(default)]
    values: Option<StateValues>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct StateValues {
    #[serde(default)]
    root_module: RootModule,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RootModule {
    #[serde(default)]
    resources: Vec<StateResource>,
}

#[derive(Debug, Clone, Deserialize)]
struct StateResource {
    address: String,
    #[serde(default)]
    values: Value,
    #[serde(default)]
    sensitive_values: Value,
}

/// An object as the plan's refresh found it.
pub(super) struct Refreshed<'p> {
    pub(super) values: &'p Value,
    pub(super) sensitive: &'p Value,
}

impl SavedPlan {
    /// Reads the answer of `terraform show -json`.
    pub(super) fn read(text: &str) -> Result<Self, TerraformError> {
        let wrong = |why: String| TerraformError::Answer { step: "show", why };
        let plan: Self = serde_json::from_str(text).map_err(|error| {
            // serde_json's words can hold a part of the text.
            wrong(format!("line {}, column {}", error.line(), error.column()))
        })?;
        if !plan.format_version.starts_with("1.") {
            let version = plan.format_version.escape_debug();
            return Err(wrong(format!("its format version is `{version}`, not 1")));
        }
        Ok(plan)
    }

    /// The current objects' changes by address.
    pub(super) fn changes(&self) -> HashMap<&str, &ResourceChange> {
        index(&self.resource_changes)
    }

    /// The current objects' drift by address.
    pub(super) fn drift(&self) -> HashMap<&str, &ResourceChange> {
        index(&self.resource_drift)
    }

    /// The addresses that have left-over objects which would be deleted.
    pub(super) fn deposed_addresses(&self) -> impl Iterator<Item = &str> {
        let left_over = self.resource_changes.iter().filter(|c| c.deposed.is_some());
        left_over.map(|c| c.address.as_str())
    }

    /// The objects as the refresh found them, by address.
    pub(super) fn refreshed(&self) -> HashMap<&str, Refreshed<'_>> {
        let values = self.prior_state.as_ref().and_then(|state| state.values.as_ref());
        let resources = values.map_or(&[][..], |values| values.root_module.resources.as_slice());
        resources
            .iter()
            .map(|r| {
                let refreshed = Refreshed {
                    values: &r.values,
                    sensitive: &r.sensitive_values,
                };
                (r.address.as_str(), refreshed)
            })
            .collect()
    }

    /// Whether anything in it is sensitive.
    pub(super) fn is_sensitive(&self) -> bool {
        let changes = self.resource_changes.iter().chain(&self.resource_drift);
        changes.map(|c| &c.change).any(|c| {
            hides(&c.before_sensitive, &c.before, &Value::Null)
                || hides(&c.after_sensitive, &c.after, &c.after_unknown)
        })
    }
}

fn index(changes: &[ResourceChange]) -> HashMap<&str, &ResourceChange> {
    changes
        .iter()
        .filter(|c| c.deposed.is_none() && (c.mode == "managed" || c.mode.is_empty()))
        .map(|c| (c.address.as_str(), c))
        .collect()
}

/// Whether a mask of sensitivity lies over anything: schemas mark attributes that are not set, too.
fn hides(mask: &Value, value: &Value, unknown: &Value) -> bool {
    match mask {
        Value::Bool(true) => !value.is_null() || !matches!(unknown, Value::Null | Value::Bool(false)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .any(|(n, item)| hides(item, value.get(n).unwrap_or(&Value::Null), at(unknown, n))),
        Value::Object(map) => map.iter().any(|(key, member)| {
            hides(
                member,
                value.get(key).unwrap_or(&Value::Null),
                mask_below(unknown, key),
            )
        }),
        _ => false,
    }
}

/// The member of a mask that stands for a member of its value. A mask that is `true` covers all below it.
pub(super) fn mask_below<'m>(mask: &'m Value, key: &str) -> &'m Value {
    match mask {
        Value::Object(members) => members.get(key).unwrap_or(&Value::Null),
        covering @ Value::Bool(true) => covering,
        _ => &Value::Null,
    }
}

/// The item of a mask that stands for an item of its value.
pub(super) fn at(mask: &Value, index: usize) -> &Value {
    match mask {
        Value::Array(items) => items.get(index).unwrap_or(&Value::Null),
        covering @ Value::Bool(true) => covering,
        _ => &Value::Null,
    }
}

/// The members of an object, or none.
pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_set_is_not_sensitive() {
        let mask = json!({"password": true, "blocks": [{"key": true}]});
        let none = Value::Null;
        assert!(!hides(
            &mask,
            &json!({"password": null, "blocks": [{"key": null}]}),
            &none
        ));
        assert!(hides(&mask, &json!({"password": "x"}), &none));
        assert!(hides(&mask, &json!({"blocks": [{"key": "x"}]}), &none));
        assert!(
            hides(&mask, &json!({}), &json!({"password": true})),
            "not known yet"
        );
        assert!(!hides(&json!(false), &json!({"password": "x"}), &none));
    }
}
