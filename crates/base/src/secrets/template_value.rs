//! Resolves a template with secret references into text: with versions in a plan, with values just before a write.

use zeroize::Zeroizing;

use super::{SecretReference, SecretResolver, SecretTemplate, SecretValue, TemplatePart};
use crate::error::{ErrorKind, UserError};

/// The location of a template, which decides what its value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePlace {
    /// A field of the Spec that may contain any bytes.
    Bytes,
    /// A field of the Spec that may contain only text: the value must be UTF-8.
    Text,
    /// A field that only the state still has, as text.
    RecordedText,
}

impl SecretTemplate {
    /// Returns the versions of the template's references, in order.
    ///
    /// # Errors
    /// The stack may not use a reference.
    pub async fn versions(&self, resolver: &dyn SecretResolver) -> Result<Vec<Option<String>>, UserError> {
        let mut versions = Vec::new();
        for reference in self.references() {
            versions.push(resolver.version(reference).await?);
        }
        Ok(versions)
    }

    /// Returns the text with the versions of its references filled in. Versions are not secret.
    ///
    /// # Errors
    /// A version is not known.
    pub fn with_versions(&self, versions: &[Option<String>]) -> Result<String, UserError> {
        let mut versions = versions.iter();
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(part) => text.push_str(part),
                TemplatePart::Reference(reference) => match versions.next().cloned().flatten() {
                    Some(version) => text.push_str(&version),
                    None => {
                        return Err(UserError::new(
                            ErrorKind::Secret,
                            format!("the version of `{}` could not be read", reference.label()),
                        )
                        .hint("let the role of this job read the versions of the secret"));
                    }
                },
            }
        }
        Ok(text)
    }

    /// Returns the text with the secret values filled in.
    ///
    /// # Errors
    /// A value is not available, or is not UTF-8 where that is needed.
    pub async fn value(
        &self,
        resolver: &dyn SecretResolver,
        place: TemplatePlace,
    ) -> Result<Zeroizing<Vec<u8>>, UserError> {
        let in_text = place != TemplatePlace::Bytes || self.whole().is_none();
        let mut whole = Zeroizing::new(Vec::new());
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => whole.extend_from_slice(text.as_bytes()),
                TemplatePart::Reference(reference) if reference.as_version => {
                    let version = resolver.version(reference).await?;
                    whole.extend_from_slice(version.unwrap_or_default().as_bytes());
                }
                TemplatePart::Reference(reference) => {
                    let value = one(resolver, reference, place).await?;
                    if in_text && value.expose_text().is_none() {
                        return Err(UserError::new(
                            ErrorKind::Secret,
                            format!(
                                "the value of `{}` is not UTF-8, and the reference is inside a longer text",
                                reference.label()
                            ),
                        )
                        .hint("write the reference alone into `data` of a Secret"));
                    }
                    whole.extend_from_slice(value.expose());
                }
            }
        }
        Ok(whole)
    }
}

async fn one(
    resolver: &dyn SecretResolver,
    reference: &SecretReference,
    place: TemplatePlace,
) -> Result<SecretValue, UserError> {
    match place {
        TemplatePlace::RecordedText => resolver.recorded_value(reference).await,
        TemplatePlace::Bytes | TemplatePlace::Text => Ok(resolver.value(reference).await?.0),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::secrets::RotatedVersion;

    /// Every secret is `v` in version 7; a recorded one is `r`, and `raw` is not a string.
    struct Store;

    #[async_trait]
    impl SecretResolver for Store {
        async fn version(&self, _: &SecretReference) -> Result<Option<String>, UserError> {
            Ok(Some("7".to_owned()))
        }

        async fn value(
            &self,
            reference: &SecretReference,
        ) -> Result<(SecretValue, Option<String>), UserError> {
            let bytes = match reference.path.as_str() {
                "raw" => vec![0xff, 0xfe],
                _ => b"v".to_vec(),
            };
            Ok((SecretValue::new(bytes), None))
        }

        async fn recorded_value(&self, _: &SecretReference) -> Result<SecretValue, UserError> {
            Ok(SecretValue::new(b"r".to_vec()))
        }

        fn goes_into_any(&self, _: &SecretReference) -> bool {
            false
        }

        fn has_values(&self) -> bool {
            true
        }

        fn rotated(&self) -> RotatedVersion {
            RotatedVersion::Write
        }
    }

    #[tokio::test]
    async fn values_and_versions_take_the_places_of_their_references() {
        use TemplatePlace::{Bytes, RecordedText, Text};
        let of = async |text: &str, place: TemplatePlace| {
            let template = SecretTemplate::parse(text).unwrap().unwrap();
            let value = template.value(&Store, place).await;
            value
                .map(|bytes| bytes.to_vec())
                .map_err(|error| error.to_string())
        };
        let text = "u:ref+db://pay#/k+@ref+db://pay?as=version";
        assert_eq!(of(text, Text).await, Ok(b"u:v@7".to_vec()));
        assert_eq!(of(text, RecordedText).await, Ok(b"u:r@7".to_vec()));
        assert_eq!(of("ref+db://raw", Bytes).await, Ok(vec![0xff, 0xfe]));
        for (text, place) in [("ref+db://raw", Text), ("u:ref+db://raw", Bytes)] {
            assert!(
                of(text, place).await.unwrap_err().contains("is not UTF-8"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn each_reference_has_a_version() {
        let template = SecretTemplate::parse("a ref+db://x#/k+ b ref+db://y")
            .unwrap()
            .unwrap();
        let versions = template.versions(&Store).await.unwrap();
        assert_eq!(versions, [Some("7".to_owned()), Some("7".to_owned())]);
    }

    #[test]
    fn versions_take_the_places_of_their_references() {
        let template = SecretTemplate::parse("a ref+db://x?as=version+ b ref+db://y?as=version")
            .unwrap()
            .unwrap();
        let version = |version: &str| Some(version.to_owned());
        let text = template.with_versions(&[version("7"), version("8")]);
        assert_eq!(text.unwrap(), "a 7 b 8");
        for versions in [vec![version("7")], vec![version("7"), None]] {
            let failure = template.with_versions(&versions).unwrap_err();
            assert_eq!(failure.message, "the version of `db:y` could not be read");
        }
    }
}
