//! Follows secret values through references into other resources (an environment variable, a URL), from a
//! Secret or from a Terraform resource. Plans and records contain only the keyed hash of such a value.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::Secrets;
use konverge_base::model::{
    json_parts::{any_part, each_text},
    masked_value,
    plan::FieldChange,
    spec::Resource,
    state::Recorded,
};

/// The minimum length of a masked value, in bytes. Masking shorter values would hide parts of many texts and protect
/// nothing.
const SHORTEST: usize = 4;

/// The known secret texts that references of a stack may read.
#[derive(Default)]
pub struct PropagatedSecrets(BTreeSet<String>);

impl PropagatedSecrets {
    /// Adds the texts of a resource that its runtime reports as secret.
    pub fn learn(&mut self, texts: Vec<String>) {
        self.0
            .extend(texts.into_iter().filter(|text| text.len() >= SHORTEST));
    }

    /// Returns the changes of a resource with every text masked that contains one of the values; `None` if nothing is
    /// known to be secret. The old value is masked if it was recorded in `prior` as masked, or if the new value is
    /// masked.
    ///
    /// A text that is literally in `wanted` came from no reference: it stays visible to reviewers even if
    /// it contains a part of a Secret.
    pub fn hide_changes(
        &self,
        changes: &[FieldChange],
        prior: Option<&Recorded>,
        wanted: Option<&Resource>,
        secrets: &Secrets,
    ) -> Option<Vec<FieldChange>> {
        let mut before = HashSet::new();
        if let Some(prior) = prior.filter(|_| !changes.is_empty()) {
            prior
                .attributes
                .values()
                .for_each(|value| marks(value, &mut before));
        }
        if self.0.is_empty() && before.is_empty() {
            return None;
        }
        let literals = literals(wanted);
        let holds = |text: &str| {
            !literals.contains(text) && (self.is_in(text) || before.contains(&secrets.hash(text.as_bytes())))
        };
        let mut changes = changes.to_vec();
        for change in &mut changes {
            let shown = change.to.clone();
            for value in [&mut change.from, &mut change.to].into_iter().flatten() {
                mark(value, &holds, secrets);
            }
            if let Some(from) = change.from.as_mut().filter(|_| change.to != shown) {
                mark(from, &|_| true, secrets);
            }
        }
        Some(changes)
    }

    /// Masks a record like [`Self::hide`] masks a plan.
    pub fn hide_recorded(&self, recorded: &mut Recorded, wanted: Option<&Resource>, secrets: &Secrets) {
        if self.0.is_empty() {
            return;
        }
        let literals = literals(wanted);
        let holds = |text: &str| !literals.contains(text) && self.is_in(text);
        for value in Arc::make_mut(&mut recorded.attributes).values_mut() {
            mark(value, &holds, secrets);
        }
    }

    /// Returns true if a text of the value contains one of the secrets.
    pub fn is_in_value(&self, value: &Value) -> bool {
        any_part(value, |part| part.as_str().is_some_and(|text| self.is_in(text)))
    }

    fn is_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.as_str()))
    }
}

/// Returns the literal texts of a resource in the Spec. A text with a reference is left out, because no plan contains
/// it.
fn literals(wanted: Option<&Resource>) -> HashSet<&str> {
    let mut found = HashSet::new();
    let values = wanted.into_iter().flat_map(|wanted| wanted.attributes.values());
    values.for_each(|value| each_text(value, &mut |text| found.extend([text])));
    found
}

/// Collects the hashes of the secret markers in a value.
fn marks(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| marks(item, found)),
        Value::Object(map) => match masked_value::as_secret(value) {
            Some(hash) => drop(found.insert(hash.to_owned())),
            None => map.values().for_each(|value| marks(value, found)),
        },
        _ => {}
    }
}

fn mark(value: &mut Value, holds: &dyn Fn(&str) -> bool, secrets: &Secrets) {
    match value {
        Value::String(text) if holds(text) => *value = secrets.mark(value),
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, holds, secrets)),
        Value::Object(_) if masked_value::is_secret(value) => {}
        Value::Object(map) => map.values_mut().for_each(|value| mark(value, holds, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashKey;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::json;

    #[test]
    fn the_literal_texts_of_a_resource_are_found_at_any_depth() {
        let attributes = json!({"a": "one", "b": ["two", {"c": "three"}], "n": 1});
        let wanted = Resource {
            id: "v1:ConfigMap:ns:a".parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            attributes: attributes.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: serde_json::Map::new(),
            sharing: konverge_base::model::spec::Sharing::default(),
        };
        assert_eq!(literals(Some(&wanted)), HashSet::from(["one", "two", "three"]));
        assert_eq!(literals(None), HashSet::new());
    }

    #[test]
    fn only_the_texts_that_hold_a_secret_are_marked_and_a_mark_stays() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let marked = secrets.mark(&json!("hidden"));
        let mut value = json!({"a": ["secret", "plain"], "b": marked, "n": 1});
        mark(&mut value, &|text| text != "plain", &secrets);
        let expected = json!({"a": [secrets.mark(&json!("secret")), "plain"], "b": marked, "n": 1});
        assert_eq!(value, expected);
        let mut found = HashSet::new();
        marks(&value, &mut found);
        assert_eq!(
            found,
            ["secret", "hidden"]
                .map(|text| secrets.hash(text.as_bytes()))
                .into()
        );
    }

    #[test]
    fn a_text_of_fewer_than_four_bytes_is_no_secret_to_follow() {
        let mut carried = PropagatedSecrets::default();
        carried.learn(["abc", "wxyz"].map(str::to_owned).into());
        assert_eq!(["-abc-", "-wxyz-"].map(|text| carried.is_in(text)), [false, true]);
    }
}
