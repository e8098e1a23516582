//! Replaces references to other resources by their values. A value that looks like a secret reference is refused.
//! Otherwise whoever writes the other object could choose which secret is read and where it is written.

use serde_json::{Map, Value};

use super::changed_value;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        reference::Targets,
        resolve::KnownValue,
        spec::{Resource, RuntimeKind},
    },
};
use konverge_secrets::{SecretReference, SecretTemplate, decode_base64};

/// Returns the resource with its references replaced by their values. `keep` and `lookup` are passed to
/// [`Targets::resolve`].
///
/// # Errors
/// A reference cannot be resolved, or a value has a reference to a secret that the Spec does not have there.
pub(super) fn resolve_attributes<'a>(
    targets: &Targets,
    wanted: &Resource,
    keep: &dyn Fn(&ResourceId) -> bool,
    lookup: &dyn Fn(&ResourceId) -> KnownValue<'a>,
) -> Result<Resource, UserError> {
    let attributes = targets
        .resolve(&wanted.attributes, keep, lookup)
        .map_err(|error| UserError::from_error(ErrorKind::Spec, error))?;
    if wanted.runtime == RuntimeKind::Kubernetes
        && let Some(path) = gained_reference(&wanted.attributes, &attributes)
    {
        let message = format!(
            "`{}`: the value that `{path}` reads from another object refers to a secret",
            wanted.id
        );
        return Err(UserError::new(ErrorKind::Secret, message).with_resource(&wanted.id).hint(
            "write the reference into the Spec: a value that another object contains is never read as a reference",
        ));
    }
    Ok(wanted.with(attributes))
}

/// Returns the first path whose text has a secret reference that the Spec does not have there.
fn gained_reference(before: &Map<String, Value>, after: &Map<String, Value>) -> Option<String> {
    let path = changed_value::find(before, after, &|before, now| {
        let was = before.and_then(Value::as_str).unwrap_or_default();
        now.as_str().is_some_and(|now| references(was) != references(now))
    })?;
    Some(path.components().collect::<Vec<_>>().join("."))
}

/// Returns the secret references in a text and in what it encodes; `Err` for a malformed reference.
fn references(text: &str) -> Vec<Result<SecretReference, ()>> {
    let decoded = decode_base64(text).and_then(|bytes| String::from_utf8(bytes).ok());
    let mut found = Vec::new();
    for text in std::iter::once(text).chain(decoded.as_deref()) {
        match SecretTemplate::parse(text) {
            Ok(None) => {}
            Ok(Some(template)) => found.extend(template.references().cloned().map(Ok)),
            Err(_) => found.push(Err(())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve(text: &str, value: Value) -> Result<Value, String> {
        let id: ResourceId = "v1:ConfigMap:ns:a".parse().unwrap();
        let wanted = Resource::new(
            "v1:Secret:ns:b".parse().unwrap(),
            RuntimeKind::Kubernetes,
            json!({"stringData": {"x": text}}).as_object().unwrap().clone(),
        );
        let live = json!({"data": {"x": value}});
        let targets: Targets = std::iter::once(&id).collect();
        let resolved = resolve_attributes(&targets, &wanted, &|_| false, &|_| KnownValue::Final(&live));
        let resolved = resolved.map_err(|error| error.message)?;
        Ok(resolved.attributes["stringData"]["x"].clone())
    }

    #[test]
    fn no_value_of_another_object_becomes_a_reference() {
        const READ: &str = "$kusion_path.v1:ConfigMap:ns:a.data.x";
        for (text, value) in [
            (READ.to_owned(), json!("ref+job://PAY_DB")),
            (READ.to_owned(), json!("cmVmK2pvYjovL1BBWV9EQg==")),
            (READ.to_owned(), json!({"deeper": ["ref://pay/db"]})),
            (READ.to_owned(), json!("ref+job://..")),
            (format!("ref+{READ}"), json!("job://PAY_DB")),
            (format!("ref+job://PAY_DB{READ}"), json!("_OTHER")),
            (format!("ref+job://PAY_DB+ {READ}"), json!("ref+job://PAY_OTHER")),
        ] {
            let refusal = resolve(&text, value.clone()).unwrap_err();
            assert!(
                refusal.contains("refers to a secret"),
                "{text} {value}: {refusal}"
            );
        }
        for (text, value, expected) in [
            (READ.to_owned(), json!("plain"), json!("plain")),
            (
                format!("ref+job://PAY_DB+@{READ}"),
                json!("host"),
                json!("ref+job://PAY_DB+@host"),
            ),
        ] {
            assert_eq!(resolve(&text, value), Ok(expected));
        }
    }
}
