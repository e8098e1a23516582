//! Names the outputs of other stacks that a planned value waits for. A provider plans such a value as unknown, so a
//! review without the name would accept any value.

use serde_json::Value;

use crate::runtime::PlannedResource;
use konverge_base::model::{
    FieldPath, StackId,
    masked_value::{as_unknown_output, is_unknown},
};

/// Puts the markers of awaited outputs at the paths where the plan has unknown values.
pub(super) fn name(stack: &StackId, planned: &mut PlannedResource) {
    let Some(desired) = &planned.item.desired else {
        return;
    };
    if !desired.attributes.values().any(awaits) {
        return;
    }
    let desired = Value::Object(desired.attributes.clone());
    let mut changes = planned.public.changes.clone();
    for change in &mut changes {
        if let (Some(to), Some(wanted)) = (&mut change.to, value_at(&desired, &change.path)) {
            name_in(to, wanted);
        }
    }
    planned.public = planned.public.with_changes(stack, changes);
}

/// Returns the value at a path of a plan. The path names items of a list by their label or by their index.
fn value_at<'a>(desired: &'a Value, path: &FieldPath) -> Option<&'a Value> {
    path.get(desired).or_else(|| desired.pointer(path.as_str()))
}

fn awaits(value: &Value) -> bool {
    as_unknown_output(value).is_some()
        || match value {
            Value::Array(items) => items.iter().any(awaits),
            Value::Object(map) => map.values().any(awaits),
            _ => false,
        }
}

fn name_in(planned: &mut Value, wanted: &Value) {
    if is_unknown(planned) {
        if as_unknown_output(wanted).is_some() {
            *planned = wanted.clone();
        }
        return;
    }
    match (planned, wanted) {
        (Value::Array(planned), Value::Array(wanted)) => {
            for (planned, wanted) in planned.iter_mut().zip(wanted) {
                name_in(planned, wanted);
            }
        }
        (Value::Object(planned), Value::Object(wanted)) => {
            for (key, planned) in planned {
                if let Some(wanted) = wanted.get(key) {
                    name_in(planned, wanted);
                }
            }
        }
        _ => {}
    }
}
