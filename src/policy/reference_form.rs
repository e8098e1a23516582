//! The one form of a reference to each kind of store: other ways to write the same path would pass by the rules.

use super::secret_refusal::AccessRefusal;
use crate::{
    config::{SecretStoreConfig, SecretStoreKind},
    model::RepoPath,
    secrets::{SecretReference, StoreName},
};

/// Returns true if the versions of a secret of this kind can be asked for by number.
pub(super) fn has_versions(store: &SecretStoreConfig) -> bool {
    match store.kind {
        SecretStoreKind::Env | SecretStoreKind::Kubernetes => false,
        SecretStoreKind::Vault => store.kv != Some(1),
        SecretStoreKind::Aws
        | SecretStoreKind::Ssm
        | SecretStoreKind::Sops
        | SecretStoreKind::Gcp
        | SecretStoreKind::Azure
        | SecretStoreKind::AliKms => true,
    }
}

/// A character in the name of a project or a secret of Google.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Returns true if a version is a number, or is not given.
fn is_number(version: Option<&String>) -> bool {
    version.is_none_or(|version| version.bytes().all(|b| b.is_ascii_digit()))
}

/// The one form of a reference: other ways to write the same path would pass by the rules.
pub(super) fn normal_form(
    reference: &SecretReference,
    store: &str,
    kind: SecretStoreKind,
) -> Result<SecretReference, AccessRefusal> {
    let mut named = SecretReference {
        store: StoreName::Word(store.to_owned()),
        ..reference.clone()
    };
    let wrong = || AccessRefusal::Path {
        reference: reference.to_string(),
        path: reference.path.clone(),
        kind: kind.word(),
    };
    match kind {
        SecretStoreKind::Env => {
            let is_variable = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !named.path.chars().all(is_variable) {
                return Err(wrong());
            }
        }
        SecretStoreKind::Vault => {
            // The same secret is written in one way.
            if named.path.starts_with('/') || named.path.contains(':') {
                return Err(wrong());
            }
            if !is_number(named.version.as_ref()) {
                return Err(wrong());
            }
        }
        // An ARN would be a second way to write a name.
        SecretStoreKind::Aws if named.path.contains(':') => return Err(wrong()),
        SecretStoreKind::Aws => {}
        SecretStoreKind::Ssm => {
            if named.path.contains([':', '~', '=', '@']) || !is_number(named.version.as_ref()) {
                return Err(wrong());
            }
            // A name with a `/` begins with one.
            if named.path.contains('/') && !named.path.starts_with('/') {
                named.path.insert(0, '/');
            }
            // Such a parameter is a secret of Secrets Manager, for which the rules of another store are.
            if named.path.starts_with("/aws/") {
                return Err(wrong());
            }
        }
        SecretStoreKind::Gcp => {
            let is_plain = |part: &str| !part.is_empty() && part.chars().all(is_plain);
            let is_path = matches!(named.path.split('/').collect::<Vec<_>>()[..], [project, name] if is_plain(project) && is_plain(name));
            if !is_path || !is_number(named.version.as_ref()) {
                return Err(wrong());
            }
        }
        SecretStoreKind::Azure => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let version = named.version.as_deref().unwrap_or_default();
            // The names of a vault do not tell small letters from large ones; a rule does.
            if named.path.is_empty()
                || !named.path.chars().all(is_name)
                || !version.chars().all(|c| c.is_ascii_alphanumeric())
            {
                return Err(wrong());
            }
        }
        SecretStoreKind::AliKms => {
            // An ARN would be a second way to write a name.
            if named.path.starts_with('/') || named.path.contains(':') {
                return Err(wrong());
            }
        }
        // The version of a file is the one of the revision.
        SecretStoreKind::Sops => {
            let is_file = [".yaml", ".yml", ".json"]
                .iter()
                .any(|end| named.path.ends_with(end));
            let is_normal = RepoPath::normalize(&named.path).is_some_and(|path| path.as_str() == named.path);
            if !is_file || !is_normal || named.version.is_some() {
                return Err(wrong());
            }
        }
        SecretStoreKind::Kubernetes => {
            let path = named.path.strip_prefix("v1/Secret/").unwrap_or(&named.path);
            let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
            match (parts.as_slice(), named.keys.len()) {
                ([_, _], 1) => named.path = parts.join("/"),
                ([namespace, name, key], 0) => {
                    named.path = format!("{namespace}/{name}");
                    named.keys = vec![key.clone()];
                }
                _ => return Err(wrong()),
            }
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::secrets::SecretTemplate;

    #[test]
    fn a_parameter_of_a_folder_is_named_from_the_root() {
        let path = |text: &str| {
            let template = SecretTemplate::parse(text).unwrap().unwrap();
            let named = normal_form(template.whole().unwrap(), "parameters", SecretStoreKind::Ssm);
            named.map(|named| named.path)
        };
        assert_eq!(path("ref+parameters://password").unwrap(), "password");
        assert_eq!(path("ref+parameters://prod/password").unwrap(), "/prod/password");
        assert_eq!(path("ref+parameters:///prod/password").unwrap(), "/prod/password");
        assert!(path("ref+parameters://prod/password:3").is_err());
        for other_store in [
            "aws/reference/secretsmanager/db",
            "/aws/reference/secretsmanager/db",
        ] {
            assert!(
                path(&format!("ref+parameters://{other_store}")).is_err(),
                "{other_store}"
            );
        }
    }
}
