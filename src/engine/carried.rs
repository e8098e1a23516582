//! Values of Secrets that references carry into other resources (an environment variable, a URL): there too only their
//! keyed hash is shown and recorded.

use std::collections::HashSet;

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::{
    model::{StackId, plan::ResourcePlan, state::Recorded, value},
    runtime::Planned,
    secrets::Secrets,
};

/// A shorter value would hide half of every text and protect nothing.
const SHORTEST: usize = 4;

/// The values of the Secrets among some objects, encoded and decoded.
pub(super) fn values<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut found = Vec::new();
    let secrets = objects
        .into_iter()
        .filter(|object| object["kind"] == "Secret" && object["apiVersion"] == "v1");
    for text in secrets
        .filter_map(|secret| secret["data"].as_object())
        .flat_map(Map::values)
    {
        let Some(text) = text.as_str() else { continue };
        let decoded = base64::engine::general_purpose::STANDARD.decode(text);
        found.extend(decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok()));
        found.push(text.to_owned());
    }
    found.retain(|text| text.len() >= SHORTEST);
    found
}

/// Puts marks for every text of a plan that holds one of the values, in what is shown and in what is recorded. What is
/// sent stays as it is. What stood there before is marked where it was recorded as a mark, or where it gives way to one.
pub(super) fn hide(stack: &StackId, planned: &mut Planned, values: &[String], secrets: &Secrets) {
    if let Some(recorded) = &mut planned.recorded {
        hide_recorded(recorded, values, secrets);
    }
    let old = &planned.public;
    let mut before = HashSet::new();
    if let Some(prior) = planned.item.prior.as_ref().filter(|_| !old.changes.is_empty()) {
        prior
            .attributes
            .values()
            .for_each(|value| marks(value, &mut before));
    }
    if values.is_empty() && before.is_empty() {
        return;
    }
    let holds = |text: &str| {
        values.iter().any(|secret| text.contains(secret)) || before.contains(&secrets.hash(text.as_bytes()))
    };
    let mut changes = old.changes.clone();
    for change in &mut changes {
        let shown = change.to.clone();
        for side in [&mut change.from, &mut change.to].into_iter().flatten() {
            mark(side, &holds, secrets);
        }
        if let Some(from) = change.from.as_mut().filter(|_| change.to != shown) {
            mark(from, &|_| true, secrets);
        }
    }
    let digested = ResourcePlan::new(stack, old.id.clone(), old.runtime, old.action, changes);
    planned.public = ResourcePlan {
        digest: digested.digest,
        changes: digested.changes,
        ..planned.public.clone()
    };
}

/// The hashes of the marks in a value.
fn marks(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| marks(item, found)),
        Value::Object(map) => match value::as_secret(value) {
            Some(hash) => drop(found.insert(hash.to_owned())),
            None => map.values().for_each(|value| marks(value, found)),
        },
        _ => {}
    }
}

/// The same for a record.
pub(super) fn hide_recorded(recorded: &mut Recorded, values: &[String], secrets: &Secrets) {
    let holds = |text: &str| values.iter().any(|secret| text.contains(secret));
    for value in recorded.attributes.values_mut() {
        mark(value, &holds, secrets);
    }
}

fn mark(value: &mut Value, holds: &dyn Fn(&str) -> bool, secrets: &Secrets) {
    match value {
        Value::String(text) if holds(text) => *value = secrets.mark(value),
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, holds, secrets)),
        Value::Object(_) if value::as_secret(value).is_some() => {}
        Value::Object(map) => map.values_mut().for_each(|value| mark(value, holds, secrets)),
        _ => {}
    }
}
