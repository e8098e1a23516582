//! Shows changes of references to secrets in a plan. Terraform shows nothing of a write-only attribute, so
//! such a change is added here for the reviewer.

use serde_json::Value;

use super::{module_resource::ModuleResource, secret_references::TerraformRecord};
use konverge_base::model::{
    FieldPath, masked_value,
    plan::{Action, ChangeOrigin, FieldChange},
    state::RuntimeRecord,
};
use konverge_secrets::{Secrets, WrittenReference, WrittenReferences};

/// Adds changes of references, and marks changes that come only from a new version of a secret.
pub(super) fn with_references(
    mut changes: Vec<FieldChange>,
    action: Action,
    subject: &ModuleResource,
    secrets: &Secrets,
) -> Vec<FieldChange> {
    if subject.written.is_empty() {
        return changes;
    }
    let before = TerraformRecord::references_of(subject.item.prior.as_ref());
    let of_values = subject.written.iter().filter(|(_, now)| !now.is_plain());
    match action {
        Action::Create => {
            let whole = changes.first_mut().and_then(|change| change.to.as_mut());
            if let Some(whole) = whole {
                of_values.for_each(|(path, now)| set(whole, path, now.mark(secrets)));
            }
        }
        Action::Update | Action::Replace | Action::Adopt => {
            let changed = of_values.filter(|(path, now)| before.get(*path) != Some(now));
            let added: Vec<_> = changed
                .map(|(path, now)| FieldChange {
                    path: path.clone(),
                    from: before.get(path).and_then(|before| before.mark(secrets)),
                    to: now.mark(secrets),
                    origin: ChangeOrigin::Change,
                })
                .collect();
            changes.retain(|change| added.iter().all(|added| added.path != change.path));
            changes.extend(added);
            changes.sort_by(|a, b| a.path.cmp(&b.path));
            mark_rotations(&mut changes, &subject.written, &before);
        }
        _ => {}
    }
    changes
}

/// Adds the markers of references to both sides of a change where Terraform shows no value.
pub(super) fn add_marks(from: &mut Value, to: &mut Value, subject: &ModuleResource, secrets: &Secrets) {
    let before = TerraformRecord::references_of(subject.item.prior.as_ref());
    for (side, references) in [(from, &before), (to, &subject.written)] {
        let of_values = references.iter().filter(|(_, reference)| !reference.is_plain());
        of_values.for_each(|(path, reference)| set(side, path, reference.mark(secrets)));
    }
}

/// Marks a change as a rotation of a secret if the reference has the same text as before, or if an unknown
/// value is the only change.
fn mark_rotations(changes: &mut [FieldChange], now: &WrittenReferences, before: &WrittenReferences) {
    let is_rotation = |path: &FieldPath| match (now.get(path), before.get(path)) {
        (Some(now), Some(before)) => now.is_rotated_from(before),
        _ => false,
    };
    for change in changes.iter_mut().filter(|change| is_rotation(&change.path)) {
        change.origin = ChangeOrigin::Rotation;
    }
    let follows = |change: &FieldChange| {
        change.origin == ChangeOrigin::Default && change.to.as_ref().is_some_and(masked_value::holds_unknown)
    };
    let rotates = |change: &FieldChange| change.origin == ChangeOrigin::Rotation;
    if changes.iter().any(rotates) && changes.iter().all(|change| rotates(change) || follows(change)) {
        changes
            .iter_mut()
            .for_each(|change| change.origin = ChangeOrigin::Rotation);
    }
}

/// Returns a note if a changed reference is not written, because nothing else of the resource changes.
pub(super) fn waiting(action: Action, subject: &ModuleResource) -> Option<String> {
    let before = TerraformRecord::references_of(subject.item.prior.as_ref());
    let mut moved = subject.written.iter().filter(|(path, now)| {
        let before = before.get(*path);
        !now.is_plain() && before.is_some_and(|before| before.text != now.text)
    });
    let (path, _) = (action == Action::Unchanged).then(|| moved.next()).flatten()?;
    Some(format!(
        "`{path}` is write-only: its new reference is written when another attribute changes, such as its version"
    ))
}

/// Returns the record of the references. An unchanged resource keeps its earlier record.
pub(super) fn record(action: Action, subject: &ModuleResource) -> RuntimeRecord {
    let before = TerraformRecord::references_of(subject.item.prior.as_ref());
    let written = |(path, now): (&FieldPath, &WrittenReference)| {
        let kept = before
            .get(path)
            .filter(|_| action == Action::Unchanged && !now.is_plain());
        (path.clone(), kept.unwrap_or(now).clone())
    };
    let references: WrittenReferences = subject.written.iter().map(written).collect();
    if references.is_empty() {
        RuntimeRecord::default()
    } else {
        RuntimeRecord::encode(&TerraformRecord { references })
    }
}

/// Sets or removes a member of an object whose parent exists.
fn set(whole: &mut Value, path: &FieldPath, mark: Option<Value>) {
    let Some((parent, key)) = path.split_last() else {
        return;
    };
    if let (Some(Value::Object(parent)), Some(mark)) = (whole.pointer_mut(parent.as_str()), mark) {
        parent.insert(key, mark);
    }
}
