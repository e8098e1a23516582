//! Fields of Specs: image references, and the fields that differ between two Specs.

use serde_json::{Value, json};

use konverge_base::model::{
    FieldPath, ResourceId, diff,
    spec::{Resource, RuntimeKind, Spec},
};

/// A field of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpecField {
    /// The resource that has the field.
    pub resource: ResourceId,
    /// The path of the field in the attributes, in the format of [`diff::Difference::path`].
    pub path: FieldPath,
    /// The value of the field.
    pub value: Value,
}

/// A field with the wanted and the present value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedField {
    pub field: SpecField,
    pub current: Value,
}

/// Returns the image of each container in a Spec.
pub(super) fn images(spec: &Spec) -> Vec<SpecField> {
    let mut found = Vec::new();
    let objects = spec.resources.iter();
    for resource in objects.filter(|resource| resource.runtime == RuntimeKind::Kubernetes) {
        // Finds the images as the difference to a copy of the object without images.
        let object = Value::Object(resource.attributes.clone());
        let mut bare = object.clone();
        remove_images(&mut bare);
        let images = diff::differences(&bare, &object).into_iter();
        found.extend(images.filter_map(|image| {
            Some(SpecField {
                resource: resource.id.clone(),
                path: image.path,
                value: image.to?,
            })
        }));
    }
    found
}

fn remove_images(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_images),
        Value::Object(entries) => {
            for (key, entry) in entries {
                if let ("containers" | "initContainers" | "ephemeralContainers", Value::Array(items)) =
                    (key.as_str(), &mut *entry)
                {
                    for container in items.iter_mut().filter_map(Value::as_object_mut) {
                        if container.get("image").is_some_and(Value::is_string) {
                            container.remove("image");
                        }
                    }
                }
                remove_images(entry);
            }
        }
        _ => {}
    }
}

/// Returns the name of an image: its reference without tag and digest.
pub(super) fn image_name(reference: &str) -> &str {
    let name = reference.split('@').next().unwrap_or_default();
    let after_host = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[after_host..].find(':') {
        Some(tag) => &name[..after_host + tag],
        None => name,
    }
}

/// Returns true if a text may be an image reference: it has only the characters that a registry allows.
pub(super) fn is_image_reference(text: &str) -> bool {
    let name = image_name(text);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "./:_-@".contains(c);
    !text.is_empty()
        && text.len() <= 512
        && text.chars().all(is_letter)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !name.is_empty()
        && text.matches('@').count() <= 1
}

/// Returns the indices of the `fields` that change to their wanted values; `None` if any other field changes.
pub(super) fn changes_within(before: &Spec, after: &Spec, fields: &[SpecField]) -> Option<Vec<usize>> {
    if before.resources.len() != after.resources.len() {
        return None;
    }
    let rest = |resource: &Resource| json!([resource.id, resource.depends_on, resource.extensions]);
    let mut changed = Vec::new();
    for (old, new) in before.resources.iter().zip(&after.resources) {
        if rest(old) != rest(new) {
            return None;
        }
        let [from, to] = [old, new].map(|resource| Value::Object(resource.attributes.clone()));
        for found in diff::differences(&from, &to) {
            let at = fields.iter().position(|field| {
                let same = |to: &Value| diff::same(to, &field.value);
                field.resource == new.id && field.path == found.path && found.to.as_ref().is_some_and(same)
            });
            changed.push(at?);
        }
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_name_without_tag_and_digest() {
        for (reference, name) in [
            ("nginx", "nginx"),
            ("nginx:1.27", "nginx"),
            ("localhost:5000/a/b", "localhost:5000/a/b"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b"),
            ("ghcr.io/a/b:1@sha256:00", "ghcr.io/a/b"),
            ("ghcr.io/a/b@sha256:00", "ghcr.io/a/b"),
        ] {
            assert_eq!(image_name(reference), name);
            assert!(is_image_reference(reference));
        }
        for text in ["", ":1", "@x", "a b", "a\"", "a${b}", "a:", "-a", "a@b@c", "a\n"] {
            assert!(!is_image_reference(text), "{text}");
        }
    }
}
