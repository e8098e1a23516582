//! The text that a template with references stands for: with versions in a plan, with values just before a write.

use zeroize::Zeroizing;

use super::{SecretReference, SecretResolver, SecretTemplate, SecretValue, TemplatePart};
use crate::{
    error::{ErrorKind, UserError},
    model::StackId,
};

impl SecretTemplate {
    /// The versions of its references, in order.
    ///
    /// # Errors
    /// The stack may not use a reference.
    pub async fn versions(
        &self,
        resolver: &dyn SecretResolver,
        stack: &StackId,
    ) -> Result<Vec<Option<String>>, UserError> {
        let mut versions = Vec::new();
        for reference in self.references() {
            versions.push(resolver.version(stack, reference).await?);
        }
        Ok(versions)
    }

    /// The text with the versions of its references, which are not secret.
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

    /// The text with the values. `is_text`: the place holds text only, so a value must be UTF-8. `recorded`: the
    /// template is not in the Spec, but in the state.
    ///
    /// # Errors
    /// A value is not available, or is not UTF-8 where that is needed.
    pub async fn value(
        &self,
        resolver: &dyn SecretResolver,
        stack: &StackId,
        is_text: bool,
        recorded: bool,
    ) -> Result<Zeroizing<Vec<u8>>, UserError> {
        let in_text = is_text || self.whole().is_none();
        let mut whole = Zeroizing::new(Vec::new());
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => whole.extend_from_slice(text.as_bytes()),
                TemplatePart::Reference(reference) if reference.as_version => {
                    let version = resolver.version(stack, reference).await?;
                    whole.extend_from_slice(version.unwrap_or_default().as_bytes());
                }
                TemplatePart::Reference(reference) => {
                    let value = one(resolver, stack, reference, recorded).await?;
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
    stack: &StackId,
    reference: &SecretReference,
    recorded: bool,
) -> Result<SecretValue, UserError> {
    match recorded {
        true => resolver.recorded_value(stack, reference).await,
        false => Ok(resolver.value(stack, reference).await?.0),
    }
}
