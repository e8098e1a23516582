//! Masks plans and reports: every known secret is masked in the data, before it is rendered. In a rendered text, a
//! secret may be escaped, truncated or split over lines, so that it would not be found.
//!
//! Values and messages are masked. Identities, paths and names are not, because rows are found by them.

use serde_json::Value;

use super::{Secrets, mask_resource};
use konverge_base::{
    error::{Cause, ErrorBody, UserError},
    model::{
        FieldPath, ResourceId, StackId,
        apply_result::ApplyReport,
        masked_value,
        plan::{ChangeOrigin, FieldChange, Plan, StackPlan},
        policy_finding::PolicyFinding,
        review::ReviewUnit,
        spec::{Resource, Spec},
    },
};

/// A desired value that is masked although its path is not secret, so that reviewers cannot see it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreviewableValue {
    /// The stack of the resource.
    pub stack: StackId,
    /// The resource with the value.
    pub resource: ResourceId,
    /// The path in the resource, in the format of RFC 6901.
    pub path: FieldPath,
}

/// Masks the resources of Specs: first fields that are secret by shape, type or name, then every known secret in any
/// value. Used where no provider has planned the resources.
#[must_use]
pub fn resources(resources: &[Resource], secrets: &Secrets) -> Vec<Resource> {
    secrets.learn_names(resources);
    let masked: Vec<Resource> = resources
        .iter()
        .map(|resource| mask_resource(secrets, resource))
        .collect();
    // Masking the resources above found more secrets, so all values are masked again.
    let values = |map: serde_json::Map<String, Value>| {
        let members = map.into_iter();
        members
            .map(|(key, value)| {
                let masked = secrets.mask_value_at(&FieldPath::root().join(&key), &value);
                (key, masked)
            })
            .collect()
    };
    let all = masked.into_iter().map(|resource| Resource {
        attributes: values(resource.attributes),
        extensions: values(resource.extensions),
        ..resource
    });
    all.collect()
}

/// Masks Specs, as [`resources`] does.
#[must_use]
pub fn specs(specs: &[Spec], secrets: &Secrets) -> Vec<Spec> {
    let all: Vec<Resource> = specs
        .iter()
        .flat_map(|spec| spec.resources.iter().cloned())
        .collect();
    let mut masked = resources(&all, secrets).into_iter();
    let of_spec = |spec: &Spec| Spec {
        resources: masked.by_ref().take(spec.resources.len()).collect(),
        outputs: spec
            .outputs
            .iter()
            .map(|(name, value)| (name.clone(), secrets.mask_value(value)))
            .collect(),
        ..spec.clone()
    };
    specs.iter().map(of_spec).collect()
}

/// Masks a plan, and returns the values that nobody can review. The digests of the plan stay those of the unmasked
/// plan.
pub fn plan(plan: &mut Plan, secrets: &Secrets) -> Vec<UnreviewableValue> {
    let stacks = plan.stacks.iter_mut();
    stacks.flat_map(|plan| stack(plan, secrets)).collect()
}

/// Masks the plan of one stack.
pub fn stack(plan: &mut StackPlan, secrets: &Secrets) -> Vec<UnreviewableValue> {
    if let Some(error) = &mut plan.error {
        body(error, secrets);
    }
    for note in &mut plan.notes {
        *note = secrets.mask_foreign(note);
    }
    let mut all = Vec::new();
    for resource in &mut plan.resources {
        for note in &mut resource.notes {
            *note = secrets.mask(note);
        }
        let mut paths = Vec::new();
        for change in &mut resource.changes {
            let reviewed = !matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
            if let Some(to) = change.to.as_ref().filter(|_| reviewed) {
                collect_hidden(to, &change.path, secrets, &mut paths);
            }
            mask(change, secrets);
        }
        paths.sort();
        paths.dedup();
        // This note is added after the masking, so that no secret can mask a part of it.
        let note = |path: &FieldPath| {
            format!("{path} contains the value of a Secret and is masked: check it in the code")
        };
        resource.notes.extend(paths.iter().map(note));
        all.extend(paths.into_iter().map(|path| UnreviewableValue {
            stack: plan.id.clone(),
            resource: resource.id.clone(),
            path,
        }));
    }
    all
}

/// Returns true if a reviewer can see the new value of a review unit.
pub fn is_seen(unit: &ReviewUnit, secrets: &Secrets) -> bool {
    let mut paths = Vec::new();
    if let Some(to) = &unit.to {
        collect_hidden(to, &unit.path, secrets, &mut paths);
    }
    paths.is_empty()
}

/// Masks the messages of a report.
pub fn report(report: &mut ApplyReport, secrets: &Secrets) {
    for stack in &mut report.stacks {
        if let Some(error) = &mut stack.error {
            body(error, secrets);
        }
        for message in stack.resources.iter_mut().filter_map(|r| r.message.as_mut()) {
            *message = secrets.mask(message);
        }
    }
}

/// Masks the messages of findings.
pub fn findings(findings: &mut [PolicyFinding], secrets: &Secrets) {
    for finding in findings {
        finding.message = secrets.mask(&finding.message);
        let details = finding
            .place
            .iter_mut()
            .flat_map(|place| place.details.values_mut());
        for detail in details {
            *detail = secrets.mask(detail);
        }
    }
}

/// Masks an error.
#[must_use]
pub fn failure(failure: &UserError, secrets: &Secrets) -> UserError {
    UserError {
        message: secrets.mask(&failure.message),
        hints: failure.hints.iter().map(|hint| secrets.mask(hint)).collect(),
        causes: failure
            .causes
            .iter()
            .map(|cause| Cause {
                location: cause.location.clone(),
                message: secrets.mask(&cause.message),
            })
            .collect(),
        ..failure.clone()
    }
}

fn body(error: &mut ErrorBody, secrets: &Secrets) {
    for text in std::iter::once(&mut error.message).chain(&mut error.hints) {
        *text = secrets.mask(text);
    }
}

/// Masks the old and the new value of a change. If they differ only in a secret, their hashes still differ.
fn mask(change: &mut FieldChange, secrets: &Secrets) {
    let masked = |value: &Option<Value>| {
        value
            .as_ref()
            .map(|value| secrets.mask_value_at(&change.path, value))
    };
    let (mut from, mut to) = (masked(&change.from), masked(&change.to));
    if from == to && change.from != change.to {
        let marked = |value: &Option<Value>| value.as_ref().map(|value| secrets.marked(value));
        (from, to) = (marked(&change.from), marked(&change.to));
    }
    (change.from, change.to) = (from, to);
}

/// Collects the paths in a value where a known secret is in clear text.
fn collect_hidden(value: &Value, path: &FieldPath, secrets: &Secrets, found: &mut Vec<FieldPath>) {
    match value {
        Value::String(text) if secrets.hides(path, text) => found.push(path.clone()),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                collect_hidden(item, &path.item(at), secrets, found);
            }
        }
        Value::Object(_) if masked_value::is_secret(value) => {}
        Value::Object(map) => {
            for (key, member) in map {
                collect_hidden(member, &path.join(key), secrets, found);
            }
        }
        _ => {}
    }
}
