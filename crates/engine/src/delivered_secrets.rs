//! Checks that no sensitive value flows into an object that Argo CD or Flux delivers: everybody who can read its
//! artifact would see the value. The check fails the plan, so that an apply changes nothing.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{changed_value, secret_reference_check::each_text};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        FieldPath, ResourceId, masked_value,
        reference::{Reference, Targets},
        spec::Resource,
    },
};

/// The paths of planned resources whose values their providers call sensitive.
#[derive(Default)]
pub(super) struct SensitivePaths(HashMap<ResourceId, Value>);

impl SensitivePaths {
    /// Adds the sensitive paths of a resource whose values other resources read.
    pub(super) fn learn(&mut self, id: &ResourceId, paths: Value) {
        if masked_value::holds_true(&paths) {
            self.0.insert(id.clone(), paths);
        }
    }

    /// Returns an error if a delivered object reads one of the sensitive paths, even if the value is not known yet.
    ///
    /// # Errors
    /// The first reference to a sensitive path.
    pub(super) fn check(&self, object: &Resource, targets: &Targets) -> Result<(), UserError> {
        let mut found = None;
        if !self.0.is_empty() {
            each_text(object, |path, _, text| {
                // The parser of references reports a malformed one, so this check ignores it.
                let reads = targets.scan(text).unwrap_or_default();
                if let Some(read) = reads.iter().find(|read| self.hold(read)) {
                    found.get_or_insert_with(|| (path.clone(), read.target.clone()));
                }
            });
        }
        match found {
            None => Ok(()),
            Some((path, from)) => Err(refusal(&object.id, &path, Some(&from))),
        }
    }

    /// Returns true if a reference reads one of the sensitive paths.
    pub(super) fn hold(&self, read: &Reference) -> bool {
        let Some(mut mask) = self.0.get(&read.target) else {
            return false;
        };
        for key in &read.path {
            let below = match mask {
                Value::Object(members) => members.get(key),
                Value::Array(items) => match key.parse::<usize>() {
                    Ok(index) => items.get(index),
                    // The key is not an index, so the item is unknown: the sensitive paths of the whole list are used.
                    Err(_) => break,
                },
                _ => break,
            };
            match below {
                Some(below) => mask = below,
                None => return false,
            }
        }
        masked_value::holds_true(mask)
    }
}

/// Returns an error if masking changed an object that Argo CD or Flux delivers: then a secret value of another resource
/// reached the object.
///
/// # Errors
/// The first value that was masked.
pub(super) fn check_masked(
    id: &ResourceId,
    before: &Map<String, Value>,
    masked: &Map<String, Value>,
) -> Result<(), UserError> {
    match changed_value::find(before, masked, &|_, now| masked_value::is_secret(now)) {
        None => Ok(()),
        Some(path) => Err(refusal(id, &path, None)),
    }
}

fn refusal(id: &ResourceId, path: &FieldPath, from: Option<&ResourceId>) -> UserError {
    let from = from.map(|from| format!(", from `{from}`")).unwrap_or_default();
    let what = format!("`{id}` would carry a secret value into the artifact at `{path}`{from}");
    UserError::new(ErrorKind::Secret, what)
        .with_resource(id)
        .hint("write the value into a secret store, and let the cluster read it from there")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::json;

    const FROM: &str = "hashicorp:local:local_file:f";

    fn check(places: Value, text: &str) -> Result<(), String> {
        let from: ResourceId = FROM.parse().unwrap();
        let object = Resource::new(
            "v1:ConfigMap:ns:a".parse().unwrap(),
            RuntimeKind::Kubernetes,
            json!({"data": {"a/b": text}}).as_object().unwrap().clone(),
        );
        let mut known = SensitivePaths::default();
        known.learn(&from, places);
        let targets: Targets = [&from, &object.id].into_iter().collect();
        known.check(&object, &targets).map_err(|error| error.message)
    }

    #[test]
    fn a_reference_to_a_sensitive_place_to_a_part_and_to_what_is_around_it_is_refused() {
        let places = json!({"content": true, "block": [{"key": true, "id": false}], "tags": {}});
        for read in [
            "content",
            "content.part",
            "block",
            "block[0]",
            "block[0].key",
            "block.key",
        ] {
            let refusal = check(places.clone(), &format!("u:$kusion_path.{FROM}.{read}@h")).unwrap_err();
            assert!(
                refusal.contains("`/data/a~1b`, from `hashicorp:local:local_file:f`"),
                "{read}: {refusal}"
            );
        }
        for read in ["id", "block[0].id", "block[1].key", "tags.content"] {
            assert_eq!(
                check(places.clone(), &format!("$kusion_path.{FROM}.{read}")),
                Ok(()),
                "{read}"
            );
        }
        let all = check(json!(true), &format!("$kusion_path.{FROM}.id"));
        assert!(all.is_err());
        assert_eq!(
            check(json!({"content": false}), &format!("$kusion_path.{FROM}.content")),
            Ok(())
        );
    }

    #[test]
    fn a_value_that_was_masked_on_its_way_is_refused() {
        let id: ResourceId = "v1:ConfigMap:ns:a".parse().unwrap();
        let secret = masked_value::secret("1");
        let masks = |before: Value, now: Value| {
            let checked = check_masked(&id, before.as_object().unwrap(), now.as_object().unwrap());
            checked.map_err(|error| error.message)
        };
        let before = json!({"a": ["x", {"b": "y"}], "own": secret});
        assert_eq!(masks(before.clone(), before.clone()), Ok(()));
        let refusal = masks(before, json!({"a": ["x", {"b": secret}], "own": secret})).unwrap_err();
        assert!(refusal.contains("`/a/1/b`"), "{refusal}");
    }
}
