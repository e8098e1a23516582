//! Creates the marker of a text with secret references: the references are shown, the text around them is hashed.

use std::convert::Infallible;

use serde_json::Value;

use super::{SecretReference, SecretTemplate, Secrets};
use crate::model::masked_value::{self, ReferenceMark};

/// The placeholder for an unknown version, if another version of the same text is known.
const NO_VERSION: &str = "?";

/// Returns the marker; `None` for a text without references.
pub fn reference_mark(secrets: &Secrets, text: &str) -> Option<Value> {
    let template = SecretTemplate::from_stand_in(text)?;
    // A version in the Spec is part of the reference, so it is shown.
    let labels: Vec<_> = template.references().map(SecretReference::pinned_label).collect();
    let versions = template.references().map(|reference| {
        let version = reference.version.as_deref().or(reference.at.as_deref());
        version.unwrap_or(NO_VERSION)
    });
    let versions: Vec<_> = versions.collect();
    let is_known = versions.iter().any(|version| *version != NO_VERSION);
    let version = is_known.then(|| versions.join(" + "));
    let around = template.whole().is_none().then(|| {
        let written = template.try_map(|reference| Ok::<_, Infallible>(reference.as_written()));
        let written = written.map_or_else(|never| match never {}, |text| text.to_string());
        secrets.hash(written.as_bytes())
    });
    Some(masked_value::reference(ReferenceMark {
        reference: &labels.join(" + "),
        version: version.as_deref(),
        text: around.as_deref(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::HashKey;
    use serde_json::json;

    #[test]
    fn a_reference_is_shown_and_the_text_around_it_is_not() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let mark = |text: &str| reference_mark(&secrets, text);
        assert_eq!(mark("hunter22"), None);
        assert_eq!(
            mark("ref+db://pay?at=7#/password"),
            Some(json!({"$secret": {"ref": "db:pay#/password", "version": "7"}}))
        );
        let one = mark("postgres://hunter22:ref+db://pay#/password+@host").unwrap();
        let two = mark("postgres://hunter33:ref+db://pay#/password+@host").unwrap();
        assert_ne!(one, two, "another text is another value");
        assert!(!one.to_string().contains("hunter"), "{one}");
        assert_eq!(
            mark("ref+db://pay?version=7#/password"),
            Some(json!({"$secret": {"ref": "db:pay?version=7#/password", "version": "7"}}))
        );
        let moved = mark("postgres://hunter22:ref+db://pay?at=7#/password+@host").unwrap();
        assert_eq!(one["$secret"]["text"], moved["$secret"]["text"]);
        let hashed = mark("postgres://hunter22:ref+db://pay?at=hash:a0a68df9#/password+@host").unwrap();
        assert_eq!(one["$secret"]["text"], hashed["$secret"]["text"]);
        assert_eq!(hashed["$secret"]["version"], "hash:a0a68df9");
        let in_json = SecretTemplate::parse("ref+db://pay#/password")
            .unwrap()
            .unwrap()
            .json_stand_in();
        assert_eq!(mark(&in_json), mark("ref+db://pay#/password"));
    }
}
