//! Field ownership: which fields of an object Konverge owns, and which it should own.
//!
//! Server-side apply removes a field that is no longer in the Spec only if no other manager owns it. A
//! manager that *updates* (`kubectl edit`, a client-side apply, Kusion, Helm) keeps owning a field when
//! Konverge applies the same value, so such a field would stay in the object forever. Therefore Konverge's
//! ownership is exclusive: those managers lose the fields that the Spec sets. Managers that *apply* declare
//! in every run which fields they want. With them a field is shared, and it stays when Konverge releases it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    field_leftovers::Leftover,
    managed_fields::{self, FieldsEntry},
};
use konverge_base::model::{FieldPath, field_path::label, text::first_few};

/// The number of fields that a note names; the others are counted.
const NAMED: usize = 3;

/// Changes of the ownership of fields by an apply, without changes of values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Transfer {
    /// Fields that Konverge will own.
    pub taken: Vec<FieldPath>,
    /// Fields that Konverge releases and that keep their value, each with another manager that applies it.
    pub released: Vec<(FieldPath, Option<String>)>,
    /// Fields that updating managers lose, by manager.
    pub from: BTreeMap<String, Vec<FieldPath>>,
    /// Fields that those managers must lose before the apply, in the form of `managedFields`.
    pub claim: Map<String, Value>,
    /// True if Konverge's entry has another API version.
    other_version: bool,
}

impl Transfer {
    /// Computes the transfer from the live object to the server's result of an apply, without ignored paths.
    /// `manager` is the field manager of the apply.
    pub(crate) fn between(
        manager: &str,
        live: &Value,
        becomes: &Value,
        is_ignored: impl Fn(&FieldPath) -> bool,
    ) -> Self {
        let Some(wanted) = applied(manager, becomes) else {
            return Self::default();
        };
        let nothing = Map::new();
        let before = applied(manager, live);
        let had = before.map_or(&nothing, |entry| entry.fields);
        let paths = |set: &Map<String, Value>, object: &Value| {
            let mut paths = paths(set, object);
            paths.retain(|path| !is_ignored(path));
            paths
        };
        let mut released = Vec::new();
        for path in outermost(paths(&managed_fields::subtract(had, wanted.fields), live)) {
            // A field that disappears together with the ownership is shown as a change of the object instead.
            if path.get(becomes).is_some() {
                let owner = applier(manager, becomes, &path);
                released.push((path, owner));
            }
        }
        let mut transfer = Self {
            taken: outermost(paths(&managed_fields::subtract(wanted.fields, had), becomes)),
            released,
            other_version: before.is_some_and(|before| before.api_version != wanted.api_version),
            ..Self::default()
        };
        for entry in managed_fields::entries(becomes).filter(FieldsEntry::is_update) {
            let shared = managed_fields::intersection(wanted.fields, entry.fields);
            let named = outermost(paths(&shared, becomes));
            if !named.is_empty() {
                transfer.claim = managed_fields::union(&transfer.claim, &shared);
                let from = transfer.from.entry(entry.manager.to_owned());
                from.or_default().extend(named);
            }
        }
        transfer
    }

    /// Adds fields that the last apply wrote, that the Spec no longer sets, and that only updating managers
    /// still own. Konverge takes them over, so that the apply removes them.
    pub(crate) fn with_leftovers(mut self, leftovers: &[Leftover]) -> Self {
        for leftover in leftovers {
            self.claim = managed_fields::union(&self.claim, &leftover.fields);
        }
        self
    }

    /// Removes the fields whose values change, because these are shown as changes.
    pub(crate) fn apart_from<'a>(mut self, changed: impl Iterator<Item = &'a FieldPath> + Clone) -> Self {
        let stays = |path: &FieldPath| {
            !changed
                .clone()
                .any(|other| path.is_within(other) || other.is_within(path))
        };
        self.taken.retain(stays);
        self.released.retain(|(path, _)| stays(path));
        for paths in self.from.values_mut() {
            paths.retain(stays);
        }
        self.from.retain(|_, paths| !paths.is_empty());
        self
    }

    /// Returns true if no ownership must change.
    pub(crate) fn is_settled(&self) -> bool {
        *self == Self::default()
    }

    /// Returns every path whose ownership changes, sorted.
    pub(crate) fn paths(&self) -> Vec<FieldPath> {
        let released = self.released.iter().map(|(path, _)| path);
        let shared = self.from.values().flatten();
        let all: BTreeSet<_> = self.taken.iter().chain(released).chain(shared).cloned().collect();
        if all.is_empty() && self.other_version {
            vec![FieldPath::root()]
        } else {
            all.into_iter().collect()
        }
    }

    /// Returns notes for the reader of the plan.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (manager, paths) in &self.from {
            notes.push(format!(
                "takes over {} from `{}`: same value, only the field manager changes",
                describe_paths(paths),
                manager.escape_debug()
            ));
        }
        let shared: BTreeSet<_> = self.from.values().flatten().collect();
        let alone = self.taken.iter().filter(|path| !shared.contains(path));
        let alone: Vec<_> = alone.cloned().collect();
        if !alone.is_empty() {
            notes.push(format!(
                "takes ownership of {}: same value, only the field manager changes",
                describe_paths(&alone)
            ));
        }
        for (path, owner) in &self.released {
            notes.push(match owner {
                Some(owner) => format!("`{path}` stays: `{}` applies it too", owner.escape_debug()),
                None => format!("gives up `{path}`, which keeps its value"),
            });
        }
        if self.other_version && notes.is_empty() {
            notes.push("its fields are recorded in another API version: only that changes".to_owned());
        }
        notes
    }
}

fn describe_paths(paths: &[FieldPath]) -> String {
    first_few(paths.iter().map(|path| format!("`{path}`")), NAMED)
}

/// Returns the entry of the manager `manager`.
fn applied<'o>(manager: &str, object: &'o Value) -> Option<FieldsEntry<'o>> {
    managed_fields::entries(object)
        .find(|entry| entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty())
}

/// Returns another manager that applies a field.
fn applier(manager: &str, object: &Value, path: &FieldPath) -> Option<String> {
    let mut others = managed_fields::entries(object).filter(|entry| {
        let is_other = entry.operation == "Apply" && entry.manager != manager;
        is_other && managed_fields::fields_below(entry.fields, object, path).is_some()
    });
    others.next().map(|entry| entry.manager.to_owned())
}

/// Converts a field set of an object to paths of a plan.
fn paths(set: &Map<String, Value>, object: &Value) -> Vec<FieldPath> {
    let mut found = Vec::new();
    collect(set, Some(object), &FieldPath::root(), &mut found);
    found
}

fn collect(set: &Map<String, Value>, value: Option<&Value>, path: &FieldPath, found: &mut Vec<FieldPath>) {
    for (key, below) in set {
        let Some(below) = below.as_object() else { continue };
        if key == "." {
            found.push(path.clone());
            continue;
        }
        let (name, value) = match (key.strip_prefix("f:"), managed_fields::ItemName::read(key)) {
            (Some(name), _) => (name.to_owned(), value.and_then(|value| value.get(name))),
            (None, Some(managed_fields::ItemName::Keys(keys))) => {
                let names: Vec<&str> = keys.keys().map(String::as_str).collect();
                (label(&Value::Object(keys.clone()), &names), None)
            }
            (None, Some(managed_fields::ItemName::Literal(literal))) => (
                literal
                    .as_str()
                    .map_or_else(|| literal.to_string(), str::to_owned),
                None,
            ),
            (None, None) => continue,
        };
        let path = path.join(&name);
        if below.is_empty() {
            found.push(path)
        } else {
            collect(below, value, &path, found)
        }
    }
}

/// Removes paths that are below other paths, and sorts the rest.
fn outermost(mut paths: Vec<FieldPath>) -> Vec<FieldPath> {
    paths.sort();
    paths.dedup();
    let all: BTreeSet<FieldPath> = paths.iter().cloned().collect();
    let is_below = |path: &FieldPath| {
        let path = path.as_str();
        let mut ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
        ends.any(|at| all.contains(&path[..at]))
    };
    paths.retain(|path| !is_below(path));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIELD_MANAGER;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn object(data: Value, entries: Vec<Value>) -> Value {
        json!({"metadata": {"name": "c", "managedFields": entries}, "data": data})
    }

    #[test]
    fn an_equal_value_of_a_manager_that_updates_is_taken_over() {
        let live = object(
            json!({"a": "1", "b": "2"}),
            vec![
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
                entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}}})),
            ],
        );
        let becomes = object(
            json!({"a": "1", "b": "2"}),
            vec![
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}})),
                entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}}})),
            ],
        );
        let transfer = Transfer::between(FIELD_MANAGER, &live, &becomes, |_| false);
        assert_eq!(transfer.paths(), ["/data/b"]);
        assert_eq!(
            Value::Object(transfer.claim.clone()),
            json!({"f:data": {"f:b": {}}})
        );
        assert_eq!(
            transfer.notes(),
            ["takes over `/data/b` from `kubectl-edit`: same value, only the field manager changes"]
        );
        assert!(Transfer::between(FIELD_MANAGER, &live, &becomes, |path| path == "/data/b").is_settled());
    }

    #[test]
    fn a_manager_that_applies_keeps_its_share() {
        let live = object(
            json!({"a": "1"}),
            vec![
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
                entry("flux", "Apply", json!({"f:data": {"f:a": {}}})),
            ],
        );
        assert!(Transfer::between(FIELD_MANAGER, &live, &live, |_| false).is_settled());
        let becomes = object(
            json!({"a": "1"}),
            vec![
                entry(
                    FIELD_MANAGER,
                    "Apply",
                    json!({"f:metadata": {"f:annotations": {"f:x": {}}}}),
                ),
                entry("flux", "Apply", json!({"f:data": {"f:a": {}}})),
            ],
        );
        let released = Transfer::between(FIELD_MANAGER, &live, &becomes, |_| false);
        assert_eq!(released.released, [("/data/a".into(), Some("flux".to_owned()))]);
        assert!(
            released
                .notes()
                .contains(&"`/data/a` stays: `flux` applies it too".to_owned())
        );
    }
}
