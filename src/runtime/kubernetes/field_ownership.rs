//! Field ownership: which fields of an object are ours, and which should be.
//!
//! Server-side apply removes a field that leaves the Spec only if no other manager owns it. A manager that
//! *updates* (`kubectl edit`, a client-side apply, Kusion, Helm) keeps owning a field when we apply the same
//! value, so such a field would stay in the object for ever. So our ownership is exclusive: those managers
//! lose the fields that the Spec sets. Managers that *apply* declare on every run what they want; with them a
//! field is shared, and it stays when we release it.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    FIELD_MANAGER,
    client::ApiRequest,
    discovery::ResourceType,
    fetch,
    managed_fields::{self, FieldsEntry},
    plan::PlanItem,
    precondition::{self, Precondition, WriteKind},
};
use crate::{
    error::UserError,
    model::{diff, masked_value::join_path},
};

/// The number of fields that a note names; the others are counted.
const NAMED: usize = 3;

/// How an apply would change the ownership of fields, besides their values.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Transfer {
    /// Fields that become ours.
    pub taken: Vec<String>,
    /// Fields that stop being ours and keep their value, with another manager that applies them.
    pub released: Vec<(String, Option<String>)>,
    /// Fields that updating managers lose, by manager.
    pub from: BTreeMap<String, Vec<String>>,
    /// What those managers must release before the apply.
    pub claim: Map<String, Value>,
    /// Our entry has another API version.
    other_version: bool,
}

impl Transfer {
    /// The transfer from the live object to the server's result of an apply, without paths that are not
    /// compared.
    pub fn between(live: &Value, becomes: &Value, is_ignored: impl Fn(&str) -> bool) -> Self {
        let Some(wanted) = applied(becomes) else {
            return Self::default();
        };
        let nothing = Map::new();
        let before = applied(live);
        let had = before.map_or(&nothing, |entry| entry.fields);
        let paths = |set: &Map<String, Value>, object: &Value| -> Vec<String> {
            let mut paths = paths(set, object);
            paths.retain(|path| !is_ignored(path));
            paths
        };
        let mut released = Vec::new();
        for path in outermost(paths(&managed_fields::subtract(had, wanted.fields), live)) {
            // A field that disappears with our ownership is a change of the object, and is shown as one.
            if diff::at(becomes, &path).is_some() {
                let owner = applier(becomes, &path);
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
                transfer
                    .from
                    .entry(entry.manager.to_owned())
                    .or_default()
                    .extend(named);
            }
        }
        transfer
    }

    /// Adds fields that the last apply wrote, that the Spec no longer sets, and that only updating managers
    /// still own: they become ours, so that the apply removes them.
    pub fn with_leftovers(mut self, leftovers: &[Leftover]) -> Self {
        for leftover in leftovers {
            self.claim = managed_fields::union(&self.claim, &leftover.fields);
        }
        self
    }

    /// Removes the fields whose values change too, because these are shown as changes.
    pub fn apart_from<'a>(mut self, changed: impl Iterator<Item = &'a str> + Clone) -> Self {
        let within = |path: &str, above: &str| {
            path.strip_prefix(above)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let stays = |path: &String| {
            !changed
                .clone()
                .any(|other| within(path, other) || within(other, path))
        };
        self.taken.retain(stays);
        self.released.retain(|(path, _)| stays(path));
        for paths in self.from.values_mut() {
            paths.retain(stays);
        }
        self.from.retain(|_, paths| !paths.is_empty());
        self
    }

    /// Returns true if our ownership is exactly as it should be.
    pub fn is_settled(&self) -> bool {
        *self == Self::default()
    }

    /// Every path whose ownership changes, sorted.
    pub fn paths(&self) -> Vec<String> {
        let released = self.released.iter().map(|(path, _)| path);
        let shared = self.from.values().flatten();
        let all: BTreeSet<_> = self.taken.iter().chain(released).chain(shared).cloned().collect();
        match all.is_empty() && self.other_version {
            true => vec![String::new()],
            false => all.into_iter().collect(),
        }
    }

    /// Notes for the reader.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (manager, paths) in &self.from {
            notes.push(format!(
                "takes over {} from `{}`: same value, only the field manager changes",
                describe_paths(paths),
                manager.escape_debug()
            ));
        }
        let shared: BTreeSet<_> = self.from.values().flatten().collect();
        let alone: Vec<_> = self
            .taken
            .iter()
            .filter(|path| !shared.contains(path))
            .cloned()
            .collect();
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

fn describe_paths(paths: &[String]) -> String {
    let first: Vec<_> = paths.iter().take(NAMED).map(|path| format!("`{path}`")).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Our entry.
fn applied(object: &Value) -> Option<FieldsEntry<'_>> {
    managed_fields::entries(object).find(|entry| {
        entry.manager == FIELD_MANAGER && entry.operation == "Apply" && entry.subresource.is_empty()
    })
}

/// Another manager that applies a field.
fn applier(object: &Value, path: &str) -> Option<String> {
    let mut others = managed_fields::entries(object)
        .filter(|entry| entry.operation == "Apply" && entry.manager != FIELD_MANAGER);
    let found = others.find(|entry| managed_fields::fields_below(entry.fields, object, path).is_some());
    found.map(|entry| entry.manager.to_owned())
}

/// The paths of a field set in an object, as in a plan.
fn paths(set: &Map<String, Value>, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(set, Some(object), "", &mut found);
    found
}

fn collect(set: &Map<String, Value>, value: Option<&Value>, path: &str, found: &mut Vec<String>) {
    for (key, below) in set {
        let Some(below) = below.as_object() else { continue };
        if key == "." {
            found.push(path.to_owned());
            continue;
        }
        let (name, value) = match (key.strip_prefix("f:"), managed_fields::ItemName::read(key)) {
            (Some(name), _) => (name.to_owned(), value.and_then(|value| value.get(name))),
            (None, Some(managed_fields::ItemName::Keys(keys))) => {
                let names: Vec<&str> = keys.keys().map(String::as_str).collect();
                (diff::label(&Value::Object(keys.clone()), &names), None)
            }
            (None, Some(managed_fields::ItemName::Literal(literal))) => (
                literal
                    .as_str()
                    .map_or_else(|| literal.to_string(), str::to_owned),
                None,
            ),
            (None, None) => continue,
        };
        let path = join_path(path, &name);
        match below.is_empty() {
            true => found.push(path),
            false => collect(below, value, &path, found),
        }
    }
}

/// Removes paths below other paths; sorted.
fn outermost(mut paths: Vec<String>) -> Vec<String> {
    paths.sort();
    paths.dedup();
    let all: BTreeSet<String> = paths.iter().cloned().collect();
    let is_below = |path: &String| {
        let mut ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
        ends.any(|at| all.contains(&path[..at]))
    };
    paths.retain(|path| !is_below(path));
    paths
}

/// A field that the last apply wrote and that the Spec no longer sets, but that an apply alone would keep,
/// because only updating managers own it.
#[derive(Debug, PartialEq)]
pub(super) struct Leftover {
    pub path: String,
    /// The fields of it that they own.
    fields: Map<String, Value>,
}

/// The leftovers of an apply. `prior` and `desired` are masked alike, and so is `shown`, the live object.
pub(super) fn leftovers(prior: &Value, desired: &Value, shown: &Value, becomes: &Value) -> Vec<Leftover> {
    let mut gone = Vec::new();
    let differences = diff::differences(prior, desired);
    for difference in &differences {
        if let (Some(before), None) = (&difference.from, &difference.to) {
            leaves(&difference.path, before, &mut gone);
        }
    }
    let left = gone.into_iter().filter_map(|(path, before)| {
        // A manager that changed it since owns it legitimately.
        let is_as_written = diff::at(shown, &path).is_some_and(|found| diff::same(found, before));
        if !is_as_written || diff::at(becomes, &path).is_none() {
            return None;
        }
        let mut fields = Map::new();
        for entry in managed_fields::entries(becomes).filter(|entry| entry.subresource != "status") {
            let Some(theirs) = managed_fields::fields_below(entry.fields, becomes, &path) else {
                continue;
            };
            if !entry.is_update() {
                return None;
            }
            fields = managed_fields::union(&fields, &theirs);
        }
        (!fields.is_empty()).then_some(Leftover { path, fields })
    });
    left.collect()
}

/// Collects the members of maps one by one; a list and its items as a whole.
fn leaves<'v>(path: &str, value: &'v Value, found: &mut Vec<(String, &'v Value)>) {
    match value.as_object() {
        Some(map) if !map.is_empty() && !path.rsplit('/').next().unwrap_or_default().contains('=') => {
            for (key, below) in map {
                leaves(&join_path(path, key), below, found);
            }
        }
        _ => found.push((path.to_owned(), value)),
    }
}

/// A JSON patch that removes these paths from an object; `None` if one of them does not exist.
pub(super) fn removal<'a>(object: &Value, paths: impl Iterator<Item = &'a str>) -> Option<Value> {
    let mut pointers: Vec<Vec<String>> = paths.map(|path| pointer(object, path)).collect::<Option<_>>()?;
    // Items are removed from the end of their list, so that the indices of the others stay valid.
    let place = |part: &String| (part.parse::<usize>().unwrap_or(0), part.clone());
    pointers.sort_by_cached_key(|parts| std::cmp::Reverse(parts.iter().map(place).collect::<Vec<_>>()));
    let remove = pointers.iter().map(|parts| {
        let path: String = parts.iter().map(|part| format!("/{part}")).collect();
        json!({"op": "remove", "path": path})
    });
    Some(remove.collect())
}

/// The parts of the JSON pointer of a path.
fn pointer(object: &Value, path: &str) -> Option<Vec<String>> {
    let mut at = object;
    let mut parts = Vec::new();
    for component in path.split('/').skip(1) {
        let name = component.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Object(map) => {
                parts.push(component.to_owned());
                map.get(&name)?
            }
            Value::Array(items) => {
                let place = items.iter().position(|item| diff::is_item(item, &name))?;
                parts.push(place.to_string());
                &items[place]
            }
            _ => return None,
        };
    }
    Some(parts)
}

/// Removes the claimed fields from the managers that updated the object, and makes them ours in the same
/// write: a kill before the following apply leaves none of them without an owner.
pub(super) async fn take_over(
    subject: &PlanItem,
    of: &ResourceType,
    (seen, doing): (Precondition, WriteKind<'_>),
    claim: &Value,
) -> Result<Precondition, UserError> {
    let Some(claim) = claim.as_object().filter(|claim| !claim.is_empty()) else {
        return Ok(seen);
    };
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
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        let transfer = Transfer::between(&live, &becomes, |_| false);
        assert_eq!(transfer.paths(), ["/data/b"]);
        assert_eq!(
            Value::Object(transfer.claim.clone()),
            json!({"f:data": {"f:b": {}}})
        );
        assert_eq!(
            transfer.notes(),
            ["takes over `/data/b` from `kubectl-edit`: same value, only the field manager changes"]
        );
        assert!(Transfer::between(&live, &becomes, |path| path == "/data/b").is_settled());
        let entries = transferred(&live, &transfer.claim, "v1").unwrap();
        assert_eq!(
            Value::Array(entries),
            json!([entry(
                FIELD_MANAGER,
                "Apply",
                json!({"f:data": {"f:a": {}, "f:b": {}}})
            )])
        );
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
        assert!(Transfer::between(&live, &live, |_| false).is_settled());
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
        let released = Transfer::between(&live, &becomes, |_| false);
        assert_eq!(
            released.released,
            [("/data/a".to_owned(), Some("flux".to_owned()))]
        );
        assert!(
            released
                .notes()
                .contains(&"`/data/a` stays: `flux` applies it too".to_owned())
        );
    }

    #[test]
    fn what_the_last_apply_wrote_is_left_over_only_if_nobody_applies_it() {
        let prior = json!({"data": {"a": "1", "b": "2", "c": "3", "d": "4"}});
        let desired = json!({"data": {"a": "1"}});
        let becomes = object(
            json!({"a": "1", "b": "2", "c": "3", "d": "changed"}),
            vec![
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
                entry(
                    "kusion",
                    "Update",
                    json!({"f:data": {".": {}, "f:b": {}, "f:c": {}, "f:d": {}}}),
                ),
                entry("flux", "Apply", json!({"f:data": {"f:c": {}}})),
            ],
        );
        let left = leftovers(&prior, &desired, &becomes, &becomes);
        assert_eq!(
            left.iter().map(|l| l.path.as_str()).collect::<Vec<_>>(),
            ["/data/b"]
        );
        assert_eq!(
            Value::Object(left[0].fields.clone()),
            json!({"f:data": {"f:b": {}}})
        );
    }

    #[test]
    fn items_are_removed_from_the_end() {
        let object = json!({"spec": {"ports": [{"port": 1}, {"port": 2}, {"port": 3}], "a/b": 1}});
        let paths = ["/spec/ports/port=1", "/spec/ports/port=3", "/spec/a~1b"];
        assert_eq!(
            removal(&object, paths.into_iter()).unwrap(),
            json!([
                {"op": "remove", "path": "/spec/ports/2"},
                {"op": "remove", "path": "/spec/ports/0"},
                {"op": "remove", "path": "/spec/a~1b"}])
        );
        assert!(removal(&object, ["/spec/none"].into_iter()).is_none());
    }

    #[test]
    fn an_object_without_managers_gets_ours_alone() {
        let claim = json!({"f:data": {"f:a": {}}});
        let live = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        let entries = transferred(&live, claim.as_object().unwrap(), "v1").unwrap();
        assert_eq!(entries, [entry(FIELD_MANAGER, "Apply", claim.clone())]);
    }
}
