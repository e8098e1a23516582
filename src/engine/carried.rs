//! Values of Secrets that references carry into other resources (an environment variable, a URL): there too only their
//! keyed hash is shown and recorded.

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::{
    model::{StackId, plan::ResourcePlan, state::Recorded},
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
/// sent stays as it is.
pub(super) fn hide(stack: &StackId, planned: &mut Planned, values: &[String], secrets: &Secrets) {
    if values.is_empty() {
        return;
    }
    let old = &planned.public;
    let mut changes = old.changes.clone();
    for change in &mut changes {
        for side in [&mut change.from, &mut change.to].into_iter().flatten() {
            mark(side, values, secrets);
        }
    }
    let digested = ResourcePlan::new(stack, old.id.clone(), old.runtime, old.action, changes);
    planned.public = ResourcePlan {
        digest: digested.digest,
        changes: digested.changes,
        ..planned.public.clone()
    };
    if let Some(recorded) = &mut planned.recorded {
        hide_recorded(recorded, values, secrets);
    }
}

/// The same for a record.
pub(super) fn hide_recorded(recorded: &mut Recorded, values: &[String], secrets: &Secrets) {
    for value in recorded.attributes.values_mut() {
        mark(value, values, secrets);
    }
}

fn mark(value: &mut Value, values: &[String], secrets: &Secrets) {
    match value {
        Value::String(text) if values.iter().any(|secret| text.contains(secret)) => {
            *value = secrets.mark(value)
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, values, secrets)),
        Value::Object(map) => map.values_mut().for_each(|value| mark(value, values, secrets)),
        _ => {}
    }
}
