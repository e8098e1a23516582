//! Parses a saved plan from `terraform show -json`, format version 1
//! (<https://developer.hashicorp.com/terraform/internals/json-format>).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{TerraformError, of_output};

/// The parts of a saved plan that Konverge uses.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SavedPlan {
    format_version: String,
    /// The planned changes, including no-ops.
    #[serde(default)]
    pub(super) resource_changes: Vec<ResourceChange>,
    /// The differences between the live objects and the state.
    #[serde(default)]
    pub(super) resource_drift: Vec<ResourceChange>,
    prior_state: Option<PriorState>,
}

/// The planned change of one object.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResourceChange {
    pub(super) address: String,
    #[serde(default)]
    pub(super) mode: String,
    /// The key of a deposed object, which a failed replacement left; `None` for the current object.
    pub(super) deposed: Option<String>,
    pub(super) change: PlannedChange,
    pub(super) action_reason: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PlannedChange {
    pub(super) actions: Vec<PlannedAction>,
    #[serde(default)]
    pub(super) before: Value,
    #[serde(default)]
    pub(super) after: Value,
    /// A mask of the object: `true` where the value is known only after the apply.
    #[serde(default)]
    pub(super) after_unknown: Value,
    /// A mask of the object: `true` where the value is sensitive.
    #[serde(default)]
    pub(super) before_sensitive: Value,
    #[serde(default)]
    pub(super) after_sensitive: Value,
    /// The paths that force a replacement.
    #[serde(default)]
    pub(super) replace_paths: Vec<Vec<Value>>,
    /// Set if the object is imported.
    pub(super) importing: Option<Value>,
}

/// The actions on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlannedAction {
    NoOp,
    Create,
    Read,
    Update,
    Delete,
    Forget,
    /// An action that only a newer Terraform knows.
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Deserialize)]
struct PriorState {
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
pub(super) struct StateResource {
    address: String,
    #[serde(default)]
    pub(super) values: Value,
    #[serde(default)]
    pub(super) sensitive_values: Value,
}

impl SavedPlan {
    /// Parses the output of `terraform show -json`.
    pub(super) fn read(text: &str) -> Result<Self, TerraformError> {
        let plan: Self = serde_json::from_str(text).map_err(|error| {
            // The message of serde_json may quote the plan, so only the position is shown.
            of_output(
                "show",
                format!("line {}, column {}", error.line(), error.column()),
            )
        })?;
        if !plan.format_version.starts_with("1.") {
            let version = plan.format_version.escape_debug();
            return Err(of_output("show", format!("its format version is `{version}`, not 1")).into());
        }
        Ok(plan)
    }

    /// Returns the addresses with deposed objects, which the plan would delete.
    pub(super) fn deposed_addresses(&self) -> impl Iterator<Item = &str> {
        let left_over = self.resource_changes.iter().filter(|c| c.deposed.is_some());
        left_over.map(|c| c.address.as_str())
    }

    /// Returns the objects as the refresh found them, by address.
    pub(super) fn refreshed(&self) -> HashMap<&str, &StateResource> {
        let values = self.prior_state.as_ref().and_then(|state| state.values.as_ref());
        let resources = values
            .into_iter()
            .flat_map(|values| &values.root_module.resources);
        resources.map(|r| (r.address.as_str(), r)).collect()
    }

    /// Returns true if the plan contains a sensitive value.
    pub(super) fn is_sensitive(&self) -> bool {
        let changes = self.resource_changes.iter().chain(&self.resource_drift);
        changes.map(|c| &c.change).any(|c| {
            hides(&c.before_sensitive, &c.before, &Value::Null)
                || hides(&c.after_sensitive, &c.after, &c.after_unknown)
        })
    }
}

/// Returns the changes of the current objects, by address.
pub(super) fn by_address(changes: &[ResourceChange]) -> HashMap<&str, &ResourceChange> {
    changes
        .iter()
        .filter(|c| c.deposed.is_none() && (c.mode == "managed" || c.mode.is_empty()))
        .map(|c| (c.address.as_str(), c))
        .collect()
}

/// Returns true if a mask covers an existing value. Masks also mark attributes that are not set, which count
/// for nothing.
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

/// Returns the mask of an object's member. A mask that is `true` covers everything below it.
pub(super) fn mask_below<'m>(mask: &'m Value, key: &str) -> &'m Value {
    match mask {
        Value::Object(members) => members.get(key).unwrap_or(&Value::Null),
        covering @ Value::Bool(true) => covering,
        _ => &Value::Null,
    }
}

/// Returns the mask of a list's item.
pub(super) fn at(mask: &Value, index: usize) -> &Value {
    match mask {
        Value::Array(items) => items.get(index).unwrap_or(&Value::Null),
        covering @ Value::Bool(true) => covering,
        _ => &Value::Null,
    }
}

/// Returns the members of an object; none for other values.
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
        assert!(hides(&mask, &json!({}), &json!({"password": true})), "unknown");
        assert!(!hides(&json!(false), &json!({"password": "x"}), &none));
    }
}
