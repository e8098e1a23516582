//! What a stack publishes for others: values of its resources, after everything of it was applied. A secret is never
//! published.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::{
    delivered_secrets::SensitivePlaces, normalize::NormalizedResources, secret_masking::PropagatedSecrets,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, masked_value, reference,
        reference::Targets,
        resolve::KnownValue,
        spec::Resource,
        stack_output::{self, MAX_BYTES, OutputName},
    },
    secrets::{SecretTemplate, Secrets, mask_resource},
};

/// The hint for a value that is secret.
const BY_STORE: &str =
    "write the value into a secret store, and let the other stack refer to it there (`ref+STORE://PATH`)";

/// A value that a stack publishes.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// The value.
    pub value: Value,
    /// The resources that it is read from.
    pub resources: BTreeSet<ResourceId>,
}

/// The outputs of a stack before they are known: a value, or a text with references to its resources.
#[derive(Debug, Clone, Default)]
pub(super) struct PublishedOutputs(BTreeMap<OutputName, (Value, BTreeSet<ResourceId>)>);

impl PublishedOutputs {
    /// The outputs of a Spec, with the ids that its resources have now.
    ///
    /// # Errors
    /// An output refers to no resource of the Spec.
    pub(super) fn of_resources(
        outputs: BTreeMap<OutputName, Value>,
        prepared: &NormalizedResources,
    ) -> Result<Self, UserError> {
        if outputs.is_empty() {
            return Ok(Self::default());
        }
        let ids = prepared.resources.iter().map(|resource| &resource.id);
        let names: HashMap<_, _> = prepared
            .old_ids
            .iter()
            .cloned()
            .zip(ids.clone().cloned())
            .collect();
        let targets: Targets = prepared.old_ids.iter().chain(ids).collect();
        let mut known = BTreeMap::new();
        for (name, value) in outputs {
            let refused = |error: &dyn std::fmt::Display| {
                UserError::new(ErrorKind::Spec, format!("the output `{name}`: {error}"))
            };
            let one = Map::from_iter([("value".to_owned(), value)]);
            let mut renamed = targets.rename(&one, &names).map_err(|error| refused(&error))?;
            let read = targets.referenced(&renamed).map_err(|error| refused(&error))?;
            let value = renamed.remove("value").unwrap_or_default();
            known.insert(name, (value, read));
        }
        Ok(Self(known))
    }

    /// The resources that outputs are read from.
    pub(super) fn read(&self) -> impl Iterator<Item = &ResourceId> {
        self.0.values().flat_map(|(_, resources)| resources)
    }

    /// Refuses an output of a place whose value its provider calls sensitive.
    ///
    /// # Errors
    /// The first such output.
    pub(super) fn check(&self, places: &SensitivePlaces, targets: &Targets) -> Result<(), UserError> {
        for (name, (value, _)) in &self.0 {
            let mut texts = Vec::new();
            stack_texts(value, &mut texts);
            let reads = texts
                .into_iter()
                .flat_map(|text| targets.scan(text).unwrap_or_default());
            if let Some(read) = reads.into_iter().find(|read| places.hold(read)) {
                return Err(secret(name, Some(&read.target)));
            }
        }
        Ok(())
    }

    /// The values, from the live resources.
    ///
    /// # Errors
    /// A resource has no such value, or the value is secret, too large or no plain data.
    pub(super) fn values(
        &self,
        targets: &Targets,
        wanted: &HashMap<&ResourceId, &Resource>,
        live: &HashMap<ResourceId, Value>,
        carried: &PropagatedSecrets,
        secrets: &Secrets,
    ) -> Result<BTreeMap<OutputName, PublishedValue>, UserError> {
        let masked: HashMap<&ResourceId, Value> = self
            .read()
            .filter_map(|id| Some((id, mask(secrets, wanted.get(id)?, live.get(id)?))))
            .collect();
        let mut values = BTreeMap::new();
        let mut size = 0;
        for (name, (template, resources)) in &self.0 {
            let of = |known: &dyn Fn(&ResourceId) -> Option<Value>| {
                let found: HashMap<_, _> = resources.iter().filter_map(|id| Some((id, known(id)?))).collect();
                let one = Map::from_iter([("value".to_owned(), template.clone())]);
                let lookup = |id: &ResourceId| found.get(id).map_or(KnownValue::Nothing, KnownValue::Final);
                let mut resolved = targets.resolve(&one, &|_| false, &lookup)?;
                Ok::<_, konverge_base::model::resolve::ReferenceError>(
                    resolved.remove("value").unwrap_or_default(),
                )
            };
            let value = of(&|id| live.get(id).cloned()).map_err(|error| {
                UserError::new(ErrorKind::Spec, format!("the output `{name}`: {error}"))
                    .hint("name a path that the applied resource has")
            })?;
            let shown = of(&|id| masked.get(id).cloned());
            if shown.as_ref() != Ok(&value) || carried.is_in_value(&value) || is_masked(secrets, &value) {
                return Err(secret(name, resources.first()));
            }
            if let Some(why) = problem(&value) {
                let what = format!("the output `{name}` {why}");
                return Err(UserError::new(ErrorKind::Spec, what).hint("publish plain data"));
            }
            size += value.to_string().len();
            if size > MAX_BYTES {
                let what = format!(
                    "the outputs are larger than {} KiB, with `{name}`",
                    MAX_BYTES / 1024
                );
                return Err(UserError::new(ErrorKind::Spec, what)
                    .hint("publish an address where the rest can be read"));
            }
            let resources = resources.clone();
            values.insert(name.clone(), PublishedValue { value, resources });
        }
        Ok(values)
    }
}

fn mask(secrets: &Secrets, wanted: &Resource, live: &Value) -> Value {
    match live {
        Value::Object(attributes) => {
            Value::Object(mask_resource(secrets, &wanted.with(attributes.clone())).attributes)
        }
        other => other.clone(),
    }
}

fn stack_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| stack_texts(item, texts)),
        Value::Object(map) => map.values().for_each(|value| stack_texts(value, texts)),
        _ => {}
    }
}

/// Returns true if a text of the value would be masked wherever it occurs.
fn is_masked(secrets: &Secrets, value: &Value) -> bool {
    let mut texts = Vec::new();
    stack_texts(value, &mut texts);
    texts.into_iter().any(|text| secrets.mask(text) != *text)
}

/// Why a value is no plain data: a reader would take it for a mark or a reference.
fn problem(value: &Value) -> Option<&'static str> {
    if masked_value::holds_unknown(value) {
        return Some("is not known although everything was applied");
    }
    let mut texts = Vec::new();
    stack_texts(value, &mut texts);
    let refers = |text: &&str| {
        text.contains(reference::MARK)
            || text.contains(stack_output::MARK)
            || !matches!(SecretTemplate::parse(text), Ok(None))
    };
    if masked_value::holds_mark(value) || texts.iter().any(refers) {
        return Some("holds a text that Konverge would take for a reference");
    }
    None
}

fn secret(name: &OutputName, from: Option<&ResourceId>) -> UserError {
    let from = from.map(|from| format!(" of `{from}`")).unwrap_or_default();
    let what = format!("the output `{name}` is a secret value{from}, which is never published");
    UserError::new(ErrorKind::Secret, what).hint(BY_STORE)
}
