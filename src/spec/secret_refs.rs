//! Rejects references into a secret store. Otherwise the text of the reference would be applied instead of
//! the secret.

use base64::Engine;
use serde_json::{Map, Value};

use super::SpecError;
use crate::model::spec::{Resource, RuntimeKind, Spec};

/// The prefixes of a reference: Kusion v0.7 to v0.9, and later versions.
const SCHEMES: [&str; 2] = ["ref+vault://", "ref://"];

/// Returns an error if any attribute or provider configuration contains a reference to a secret.
pub(super) fn refuse(spec: &Spec) -> Result<(), SpecError> {
    for resource in &spec.resources {
        let mut attributes = vec![".attributes".to_owned()];
        let mut extensions = vec![".extensions".to_owned()];
        let found = encoded(resource)
            .or_else(|| in_map(&resource.attributes, &mut attributes))
            .or_else(|| in_map(&resource.extensions, &mut extensions));
        if let Some((path, reference)) = found {
            return Err(SpecError::Secret {
                path: format!("{}: {}", resource.id, path.trim_start_matches('.')),
                reference,
            });
        }
    }
    Ok(())
}

fn is_reference(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// In `data` of a Secret a reference is base64-encoded like every value.
fn encoded(resource: &Resource) -> Option<(String, String)> {
    let kind = resource.attributes.get("kind");
    if resource.runtime != RuntimeKind::Kubernetes || kind.and_then(Value::as_str) != Some("Secret") {
        return None;
    }
    let data = resource.attributes.get("data")?.as_object()?;
    data.iter().find_map(|(key, value)| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(value.as_str()?.trim())
            .ok()?;
        let text = String::from_utf8(bytes).ok()?;
        is_reference(&text).then(|| (format!(".attributes.data.{key}"), text.trim().to_owned()))
    })
}

fn in_map(map: &Map<String, Value>, path: &mut Vec<String>) -> Option<(String, String)> {
    map.iter().find_map(|(key, value)| {
        path.push(format!(".{key}"));
        let found = in_value(value, path);
        path.pop();
        found
    })
}

fn in_value(value: &Value, path: &mut Vec<String>) -> Option<(String, String)> {
    match value {
        Value::String(text) if is_reference(text) => Some((path.concat(), text.clone())),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            path.push(format!("[{index}]"));
            let found = in_value(item, path);
            path.pop();
            found
        }),
        Value::Object(map) => in_map(map, path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::spec::read_text;

    #[test]
    fn a_reference_is_an_error_with_its_path() {
        for (attributes, path) in [
            (
                "{x: {y: [a, 'ref+vault://p#/k']}}",
                "t: attributes.x.y[1]: `ref+vault://p#/k`",
            ),
            (
                "{x: 'ref://name/key?version=1'}",
                "t: attributes.x: `ref://name/key?version=1`",
            ),
        ] {
            let text = format!("- {{id: t, type: Terraform, attributes: {attributes}}}");
            let error = read_text(&text, "f").unwrap_err().to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }

    #[test]
    fn a_reference_in_a_providers_block_is_found() {
        let text =
            "- {id: t, type: Terraform, attributes: {}, extensions: {providerMeta: {password: 'ref://a/b'}}}";
        let error = read_text(text, "f").unwrap_err().to_string();
        assert!(
            error.starts_with("t: extensions.providerMeta.password: `ref://a/b`"),
            "{error}"
        );
    }

    #[test]
    fn an_encoded_reference_is_found() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {p: cmVmOi8vbmFtZS9rZXk=}\n";
        let error = read_text(text, "f").unwrap_err().to_string();
        assert!(error.contains("attributes.data.p: `ref://name/key`"), "{error}");
    }

    #[test]
    fn other_addresses_are_none() {
        let text = "- {id: t, type: Terraform, attributes: {x: 'href://a', y: 'see ref://a'}}";
        assert!(read_text(text, "f").is_ok());
    }
}
