//! The normal form of a reference for each kind of secret store. Rules match paths as text, so a second spelling of
//! the same path would evade a rule.

use super::secret_refusal::AccessRefusal;
use konverge_base::model::RepoPath;
use konverge_config::{SecretStoreConfig, SecretStoreKind};
use konverge_secrets::{SecretReference, StoreName};

/// Returns true if a secret in a store of this kind can be read in a version by number.
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

/// Returns true for a character that the name of a Google project or secret may contain.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Returns true if a version is a number or absent.
fn is_number(version: Option<&String>) -> bool {
    version.is_none_or(|version| version.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the normal form of a reference, or an error if its path is not of that form.
pub(super) fn normal_form(
    reference: &SecretReference,
    store: &str,
    kind: SecretStoreKind,
) -> Result<SecretReference, AccessRefusal> {
    let mut named = SecretReference {
        store: StoreName::Word(store.to_owned()),
        ..reference.clone()
    };
    let version_is_number = is_number(named.version.as_ref());
    let has_form = match kind {
        SecretStoreKind::Env => named.path.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        // Vault would accept other spellings of the same path.
        SecretStoreKind::Vault => {
            !named.path.starts_with('/') && !named.path.contains(':') && version_is_number
        }
        // An ARN is a second spelling of a name.
        SecretStoreKind::Aws => !named.path.contains(':'),
        SecretStoreKind::AliKms => !named.path.starts_with('/') && !named.path.contains(':'),
        SecretStoreKind::Ssm => {
            // Inside a folder, a parameter is named from the root.
            if named.path.contains('/') && !named.path.starts_with('/') {
                named.path.insert(0, '/');
            }
            // A parameter below `/aws/` is a secret of Secrets Manager: the rules of that store decide, not those
            // of this one.
            !named.path.contains([':', '~', '=', '@'])
                && version_is_number
                && !named.path.starts_with("/aws/")
        }
        SecretStoreKind::Gcp => {
            let is_plain = |part: &str| !part.is_empty() && part.chars().all(is_plain);
            let parts: Vec<_> = named.path.split('/').collect();
            parts.len() == 2 && parts.into_iter().all(is_plain) && version_is_number
        }
        SecretStoreKind::Azure => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let version = named.version.as_deref().unwrap_or_default();
            // Azure ignores the case of a name. Rules compare it, so a name in another case is refused unless a
            // rule allows it.
            !named.path.is_empty()
                && named.path.chars().all(is_name)
                && version.chars().all(|c| c.is_ascii_alphanumeric())
        }
        // A file in the repository has the version of the commit, so a reference cannot choose another.
        SecretStoreKind::Sops => {
            let mut ends = [".yaml", ".yml", ".json"].into_iter();
            let is_normal = RepoPath::normalize(&named.path).is_some_and(|path| path.as_str() == named.path);
            ends.any(|end| named.path.ends_with(end)) && is_normal && named.version.is_none()
        }
        SecretStoreKind::Kubernetes => {
            let path = named.path.strip_prefix("v1/Secret/").unwrap_or(&named.path);
            let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
            match (parts.as_slice(), named.keys.len()) {
                ([_, _], 1) => {
                    named.path = parts.join("/");
                    true
                }
                ([namespace, name, key], 0) => {
                    named.path = format!("{namespace}/{name}");
                    named.keys = vec![key.clone()];
                    true
                }
                _ => false,
            }
        }
    };
    if has_form {
        return Ok(named);
    }
    Err(AccessRefusal::Path {
        path: reference.path.clone(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::SecretTemplate;

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

    /// The form of a reference with these parts; `None` if it is refused.
    fn form(kind: SecretStoreKind, path: &str, version: Option<&str>, key: Option<&str>) -> Option<String> {
        let template = SecretTemplate::parse("ref+word://path").unwrap().unwrap();
        let reference = SecretReference {
            path: path.to_owned(),
            version: version.map(str::to_owned),
            keys: key.map(str::to_owned).into_iter().collect(),
            ..template.whole().unwrap().clone()
        };
        let named = normal_form(&reference, "own", kind).ok()?;
        assert_eq!(named.store, StoreName::Word("own".to_owned()));
        assert_eq!(named.version, reference.version);
        Some(
            [named.path]
                .into_iter()
                .chain(named.keys)
                .collect::<Vec<_>>()
                .join("#"),
        )
    }

    #[test]
    fn a_path_of_each_kind_of_store_is_written_in_one_way() {
        use SecretStoreKind::{AliKms, Aws, Azure, Env, Gcp, Sops, Ssm, Vault};
        for (kind, right, wrong) in [
            (Env, &["PAY_DB2"][..], &["PAY-DB", "a/b", "a:b"][..]),
            (Vault, &["secret/pay/db"], &["/secret/pay", "a:b"]),
            (Aws, &["pay/db", "/pay"], &["arn:aws:x"]),
            (
                Ssm,
                &["password", "/prod/password"],
                &["a:1", "a~b", "a=b", "a@b", "/aws/x", "aws/x"],
            ),
            (
                Gcp,
                &["project/name", "my-project_1/a"],
                &["name", "a/b/c", "/name", "project/", "pro.ject/name", "a/b c"],
            ),
            (Azure, &["Db-1"], &["", "a/b", "a_b"]),
            (AliKms, &["pay/db"], &["/pay", "acs:kms:x"]),
            (
                Sops,
                &["secrets/pay.yaml", "a.yml", "a.json"],
                &["a.toml", "../a.yaml", "a//b.yaml", "./a.yaml", "/a.yaml"],
            ),
        ] {
            for path in right {
                assert_eq!(form(kind, path, None, None).as_deref(), Some(*path), "{kind}");
            }
            for path in wrong {
                assert_eq!(form(kind, path, None, None), None, "{kind}: {path}");
            }
        }
        assert_eq!(form(Ssm, "prod/a", None, None).as_deref(), Some("/prod/a"));
    }

    #[test]
    fn a_version_has_the_form_that_its_store_gives() {
        use SecretStoreKind::{Aws, Azure, Gcp, Sops, Ssm, Vault};
        for (kind, path, number, name) in [
            (Vault, "a", true, false),
            (Ssm, "a", true, false),
            (Gcp, "p/a", true, false),
            (Aws, "a", true, true),
            (Azure, "a", true, true),
            (Sops, "a.yaml", false, false),
        ] {
            assert_eq!(form(kind, path, Some("12"), None).is_some(), number, "{kind}");
            assert_eq!(form(kind, path, Some("1a"), None).is_some(), name, "{kind}");
        }
        assert_eq!(form(Azure, "a", Some("1/2"), None), None);
    }

    #[test]
    fn a_secret_of_a_cluster_has_one_key() {
        let form = |path, key| form(SecretStoreKind::Kubernetes, path, None, key);
        let one = Some("pay/db#user".to_owned());
        assert_eq!(form("pay/db", Some("user")), one);
        assert_eq!(form("pay/db/user", None), one);
        assert_eq!(form("v1/Secret/pay/db/user", None), one);
        for (path, key) in [
            ("pay/db", None),
            ("pay", Some("user")),
            ("pay/db/user", Some("user")),
            ("v1/ConfigMap/pay/db/user", None),
        ] {
            assert_eq!(form(path, key), None, "{path}");
        }
    }

    #[test]
    fn a_store_of_files_or_variables_has_no_versions() {
        let config = konverge_config::Config::parse(
            "secrets:\n  stores:\n    env: {kind: env}\n    cluster: {kind: kubernetes}\n    old: {kind: vault, address: https://v.example, \
             mount: a, kv: 1}\n    new: {kind: vault, address: https://v.example}\n    aws: {kind: aws, region: eu-west-1}\n",
        )
        .unwrap();
        let with: Vec<_> = config
            .secrets
            .stores
            .iter()
            .filter(|(_, store)| has_versions(store))
            .collect();
        let names: Vec<_> = with.into_iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["aws", "new"]);
    }
}
