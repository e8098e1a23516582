//! The outputs that a stack publishes for other stacks: values of its resources, read after the whole stack was
//! applied. A secret is never published.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::{delivered_secrets::SensitivePaths, normalize::NormalizedResources};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    model::{
        ResourceId, masked_value, reference,
        reference::Targets,
        resolve::{KnownValue, ReferenceError},
        spec::{Resource, RuntimeKind},
        stack_output::{self, MAX_BYTES, OutputName},
    },
};
use konverge_secrets::{PropagatedSecrets, SecretTemplate, Secrets, mask_resource};

/// The hint for an output whose value is secret.
const BY_STORE: &str =
    "write the value into a secret store, and let the other stack refer to it there (`ref+STORE://PATH`)";

/// A value that a stack publishes.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// The value of the output.
    pub value: Value,
    /// The resources from which the value is read.
    pub resources: BTreeSet<ResourceId>,
}

/// The outputs that a stack publishes after an apply.
#[derive(Debug, Clone, Default)]
pub struct Publication {
    /// The values by the name of the output.
    pub values: BTreeMap<OutputName, PublishedValue>,
    /// The outputs that have no value, with the reason: a resource has no such value, or it is secret, too large or no
    /// plain data.
    pub refused: BTreeMap<OutputName, UserError>,
}

/// The outputs of a stack before they are known: a value, or a text with references to its resources.
#[derive(Debug, Clone, Default)]
pub(super) struct PublishedOutputs {
    sources: BTreeMap<OutputName, (Value, BTreeSet<ResourceId>)>,
    /// The desired form of the resources that the outputs are read from. It shows which of their values are secret.
    wanted: HashMap<ResourceId, Resource>,
}

impl PublishedOutputs {
    /// Builds the outputs of a Spec, with the ids that its resources have after they are normalized.
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
            let refused = |error: SharedError| {
                UserError::from_error(ErrorKind::Spec, error).context(format!("the output `{name}`"))
            };
            let one = Map::from_iter([("value".to_owned(), value)]);
            let mut renamed = targets
                .rename(&one, &names)
                .map_err(|error| refused(error.into()))?;
            let read = targets
                .referenced(&renamed)
                .map_err(|error| refused(error.into()))?;
            let value = renamed.remove("value").unwrap_or_default();
            known.insert(name, (value, read));
        }
        let read: BTreeSet<&ResourceId> = known.values().flat_map(|(_, read)| read).collect();
        let resources = prepared.resources.iter();
        let wanted = resources
            .filter(|resource| read.contains(&resource.id))
            .map(|resource| (resource.id.clone(), resource.clone()))
            .collect();
        Ok(Self {
            sources: known,
            wanted,
        })
    }

    /// Returns the resources that outputs are read from.
    pub(super) fn read(&self) -> impl Iterator<Item = &ResourceId> {
        self.sources.values().flat_map(|(_, resources)| resources)
    }

    /// Returns an error if an output reads a path whose value is secret, so that the plan fails before anything is
    /// applied.
    ///
    /// # Errors
    /// The first such output.
    pub(super) fn check(
        &self,
        sensitive: &SensitivePaths,
        targets: &Targets,
        secrets: &Secrets,
    ) -> Result<(), UserError> {
        let masked: HashMap<&ResourceId, Value> = self
            .wanted
            .iter()
            .map(|(id, wanted)| (id, Value::Object(mask_resource(secrets, wanted).attributes)))
            .collect();
        for (name, (template, resources)) in &self.sources {
            let mut texts = Vec::new();
            collect_texts(template, &mut texts);
            let reads = texts
                .into_iter()
                .flat_map(|text| targets.scan(text).unwrap_or_default());
            if let Some(read) = reads.into_iter().find(|read| sensitive.hold(read)) {
                return Err(secret(name, Some(&read.target)));
            }
            let lookup = |id: &ResourceId| masked.get(id).map_or(KnownValue::Nothing, KnownValue::Expected);
            let shown = resolve(targets, template, &lookup);
            if shown.is_ok_and(|shown| masked_value::holds_secret(&shown))
                || is_named_secret(secrets, name, template)
            {
                return Err(secret(name, resources.first()));
            }
        }
        Ok(())
    }

    /// Returns the values of the outputs, read from the live resources.
    pub(super) fn values(
        &self,
        targets: &Targets,
        live: &HashMap<ResourceId, Value>,
        carried: &PropagatedSecrets,
        secrets: &Secrets,
    ) -> Publication {
        let masked: HashMap<&ResourceId, Value> = self
            .read()
            .filter_map(|id| Some((id, mask(secrets, self.wanted.get(id)?, live.get(id)?))))
            .collect();
        let of_live = |id: &ResourceId| live.get(id).map_or(KnownValue::Nothing, KnownValue::Final);
        let of_masked = |id: &ResourceId| masked.get(id).map_or(KnownValue::Nothing, KnownValue::Final);
        let value_of = |name: &OutputName, template: &Value, resources: &BTreeSet<ResourceId>| {
            let value = resolve(targets, template, &of_live).map_err(|error| {
                UserError::from_error(ErrorKind::Spec, error)
                    .context(format!("the output `{name}`"))
                    .hint("name a path that the applied resource has")
            })?;
            // The same path is resolved in the masked resources. If the result differs, a part of the value is secret.
            let is_shown = resolve(targets, template, &of_masked).is_ok_and(|shown| shown == value);
            // A secret may come through a reference, be known to the run, or be named like one. Each of these suffices,
            // because a published value is readable for every stack that reads it.
            let is_secret = carried.is_in_value(&value)
                || is_masked(secrets, &value)
                || is_named_secret(secrets, name, &value);
            if is_secret || !is_shown {
                return Err(secret(name, resources.first()));
            }
            match problem(&value) {
                Some(why) => {
                    let what = format!("the output `{name}` {why}");
                    Err(UserError::new(ErrorKind::Spec, what).hint("publish plain data"))
                }
                None => Ok(value),
            }
        };
        let mut all = Publication::default();
        let mut size = 0;
        for (name, (template, resources)) in &self.sources {
            let value = value_of(name, template, resources).and_then(|value| {
                // The outputs together have one limit, because they are stored in one document.
                size += name.as_str().len() + value.to_string().len();
                if size <= MAX_BYTES {
                    return Ok(value);
                }
                let most = MAX_BYTES / 1024;
                let what = format!("the outputs are larger than {most} KiB, with `{name}`");
                Err(UserError::new(ErrorKind::Spec, what)
                    .hint("publish an address where the rest can be read"))
            });
            match value {
                Ok(value) => {
                    let published = PublishedValue {
                        value,
                        resources: resources.clone(),
                    };
                    all.values.insert(name.clone(), published);
                }
                Err(refusal) => {
                    all.refused.insert(name.clone(), refusal);
                }
            }
        }
        all
    }
}

/// Returns the value of an output, with the values of the resources that it refers to.
fn resolve<'v>(
    targets: &Targets,
    template: &Value,
    lookup: &dyn Fn(&ResourceId) -> KnownValue<'v>,
) -> Result<Value, ReferenceError> {
    let one = Map::from_iter([("value".to_owned(), template.clone())]);
    let mut resolved = targets.resolve(&one, &|_| false, lookup)?;
    Ok(resolved.remove("value").unwrap_or_default())
}

/// Returns true if a value with this name would be masked in a resource.
fn is_named_secret(secrets: &Secrets, name: &OutputName, value: &Value) -> bool {
    let as_resource = Resource::new(
        "konverge:output".parse().expect("it has no space"),
        RuntimeKind::Kubernetes,
        Map::from_iter([(name.to_string(), value.clone())]),
    );
    mask_resource(secrets, &as_resource).attributes != as_resource.attributes
}

fn mask(secrets: &Secrets, wanted: &Resource, live: &Value) -> Value {
    match live {
        Value::Object(attributes) => {
            Value::Object(mask_resource(secrets, &wanted.with(attributes.clone())).attributes)
        }
        other => other.clone(),
    }
}

fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(map) => map.values().for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}

/// Returns true if a text of the value would be masked wherever it occurs.
fn is_masked(secrets: &Secrets, value: &Value) -> bool {
    let mut texts = Vec::new();
    collect_texts(value, &mut texts);
    texts.into_iter().any(|text| secrets.mask(text) != *text)
}

/// Returns the reason why a value cannot be published: its reader would mistake it for a marker or a reference.
fn problem(value: &Value) -> Option<&'static str> {
    if masked_value::holds_unknown(value) {
        return Some("is not known although everything was applied");
    }
    let mut texts = Vec::new();
    collect_texts(value, &mut texts);
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
