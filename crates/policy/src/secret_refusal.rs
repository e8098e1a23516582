//! The reasons why a stack may not use a secret reference, with the key of `konverge.yaml` that would change that.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId},
};
use konverge_config::SecretStoreKind;
use konverge_secrets::{GENERATED, SecretReference};

/// Schemes of vals that run a command, read a file or open an address. A store's kind never has such a name.
const NEVER: [&str; 8] = [
    "exec", "file", "echo", "envsubst", "httpjson", "tfstate", "s3", "gcs",
];

/// Reasons why a reference may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AccessRefusal {
    #[error("there is no secret store `{word}`")]
    UnknownStore { word: String, known: Vec<String> },
    #[error("no default secret store is configured")]
    NoDefault,
    #[error("several secret stores are of the kind `{kind}`")]
    Ambiguous {
        kind: SecretStoreKind,
        known: Vec<String>,
    },
    #[error("a reference cannot set `{parameter}`: it names a store and a path, nothing else")]
    Parameter { parameter: String, store: String },
    #[error("a store of kind `{0}` has no versions")]
    NoVersions(SecretStoreKind),
    #[error("`{path}` is not a path of a store of kind `{kind}`")]
    Path { path: String, kind: SecretStoreKind },
    #[error("no stack may read `{0}`, with which the run itself logs in")]
    OfRun(String),
    #[error("stack `{stack}` may not read `{path}` of the secret store `{store}`")]
    Denied {
        stack: StackId,
        folder: RepoPath,
        path: String,
        store: String,
    },
    /// The text is the configured store whose rules could allow the reference.
    #[error("a secret is not allowed in this field, where everybody who can read the object can see it")]
    PlainPlace(Option<String>),
    #[error("a secret is never allowed in this field, whatever the store allows: {0}")]
    NeverPlace(&'static str),
    #[error(
        "in a Terraform resource, a reference is only allowed in a text of `attributes` or `providerMeta`"
    )]
    Terraform,
    #[error("a generated value cannot be kept for Terraform")]
    GeneratedInTerraform,
    #[error("a generated value must be the whole text")]
    NotAlone,
}

impl AccessRefusal {
    /// Returns the error of a reference.
    pub(super) fn of(&self, reference: &SecretReference) -> UserError {
        let text = match self {
            Self::Parameter { .. } => reference.label(),
            _ => reference.to_string(),
        };
        UserError::new(ErrorKind::Secret, format!("`{text}`: {self}")).hint(self.hint())
    }

    /// Returns the hint, with the key of `konverge.yaml` to write.
    fn hint(&self) -> String {
        let stores = |known: &[String]| match known {
            [] => "there is none yet".to_owned(),
            known => format!("there are: {}", known.join(", ")),
        };
        match self {
            Self::UnknownStore { word, .. } if NEVER.contains(&word.as_str()) => {
                "no kind of store runs a command, reads a file or opens an address: write the value into a store that is \
                 under `secrets.stores` in the default branch's konverge.yaml"
                    .to_owned()
            }
            Self::UnknownStore { word, known } => format!(
                "define `secrets.stores.{}` in the default branch's konverge.yaml, or name a store that is there ({})",
                word.escape_debug(),
                stores(known)
            ),
            Self::NoDefault => "set `secrets.default` in the default branch's konverge.yaml".to_owned(),
            Self::Ambiguous { known, .. } => {
                format!("write `ref+NAME://…` with one of {}", known.join(", "))
            }
            Self::Parameter { parameter, store } => match parameter.as_str() {
                "version_id" => "write `version=ID`".to_owned(),
                _ if store == GENERATED => "write `ref+generated://NAME#/KEY`: no store has the value".to_owned(),
                _ => format!(
                    "remove `{parameter}` from the reference; the address and the login of the store are set as \
                     `secrets.stores.{store}{}` in the default branch's konverge.yaml",
                    key_of(parameter)
                ),
            },
            Self::NoVersions(_) => "remove `version` from the reference".to_owned(),
            Self::Path { kind, .. } => {
                let form = match kind {
                    SecretStoreKind::Env => "write the name of a variable: `ref+env://NAME`",
                    SecretStoreKind::Vault => "write `ref+vault://MOUNT/PATH?version=NUMBER#/KEY`",
                    SecretStoreKind::Aws => "write the name of a secret: `ref+awssecrets://NAME?version=ID#/KEY`",
                    SecretStoreKind::Gcp => "write `ref+gcpsecrets://PROJECT/NAME?version=NUMBER#/KEY`",
                    SecretStoreKind::Azure => "write the name of a secret: `ref+azurekeyvault://NAME?version=ID#/KEY`",
                    SecretStoreKind::AliKms => "write the name of a secret: `ref+alikms://NAME?version=ID#/KEY`",
                    SecretStoreKind::Sops => "write the path of a file: `ref+sops://secrets/pay.yaml#/KEY`",
                    SecretStoreKind::Ssm => "write the name of a parameter: `ref+awsssm:///PATH?version=NUMBER#/KEY`",
                    SecretStoreKind::Kubernetes => "write `ref+k8s://NAMESPACE/NAME#/KEY`",
                };
                form.to_owned()
            },
            Self::OfRun(_) => {
                "give the job the value under another name, such as `PAY_TOKEN`, and refer to that".to_owned()
            }
            Self::Denied {
                folder, path, store, ..
            } => format!(
                "if the stack may read it, add `{{stacks: \"{folder}\", paths: \"{path}\"}}` to `secrets.stores.{store}.allow` in the default \
                 branch's konverge.yaml"
            ),
            Self::PlainPlace(store) => {
                let any = store.as_ref().map_or_else(String::new, |store| {
                    format!(
                        "; if everyone who reads the object may read the value, set `secrets.stores.{store}.into: any` in the default \
                         branch's konverge.yaml"
                    )
                });
                format!(
                    "put the reference into `stringData` of a Secret, and refer to that Secret by name; `?as=version` gives the version, which may \
                     stand anywhere{any}"
                )
            }
            Self::NeverPlace(_) => "put the reference into `stringData` of a Secret, and refer to that Secret by name".to_owned(),
            Self::NotAlone => "write the reference alone into a key of the Secret".to_owned(),
            Self::Terraform => {
                "write the reference into a write-only attribute or into the configuration of the provider".to_owned()
            }
            Self::GeneratedInTerraform => {
                "let Terraform make the value (`random_password`), or write it into a store".to_owned()
            }
        }
    }
}

/// Returns the key of a configured store that replaces this parameter of vals; empty if there is none.
fn key_of(parameter: &str) -> &'static str {
    match parameter {
        "address" | "proto" | "host" | "endpoint" | "vault_url" => ".address",
        "namespace" => ".namespace",
        "region" => ".region",
        "auth_method" | "token_env" | "token_file" | "role" | "role_id" | "role_arn" | "secret_id"
        | "profile" | "username" | "password_env" | "password_file" => ".auth",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_vals_is_answered_with_the_key_of_the_store() {
        let hint = |parameter: &str, store: &str| {
            let refusal = AccessRefusal::Parameter {
                parameter: parameter.to_owned(),
                store: store.to_owned(),
            };
            refusal.hint()
        };
        for (parameter, key) in [
            ("address", "`secrets.stores.db.address`"),
            ("vault_url", "`secrets.stores.db.address`"),
            ("namespace", "`secrets.stores.db.namespace`"),
            ("region", "`secrets.stores.db.region`"),
            ("role_id", "`secrets.stores.db.auth`"),
            ("password_file", "`secrets.stores.db.auth`"),
            ("other", "`secrets.stores.db`"),
        ] {
            let hint = hint(parameter, "db");
            assert!(hint.contains(key), "{parameter}: {hint}");
        }
        assert_eq!(hint("version_id", "db"), "write `version=ID`");
        assert!(hint("address", GENERATED).contains("ref+generated://NAME"));
    }

    #[test]
    fn a_wrong_path_is_answered_with_the_form_of_its_kind() {
        for (kind, form) in [
            (SecretStoreKind::Env, "ref+env://NAME"),
            (SecretStoreKind::Vault, "ref+vault://MOUNT/PATH"),
            (SecretStoreKind::Aws, "ref+awssecrets://NAME"),
            (SecretStoreKind::Gcp, "ref+gcpsecrets://PROJECT/NAME"),
            (SecretStoreKind::Azure, "ref+azurekeyvault://NAME"),
            (SecretStoreKind::AliKms, "ref+alikms://NAME"),
            (SecretStoreKind::Sops, "ref+sops://secrets/pay.yaml"),
            (SecretStoreKind::Ssm, "ref+awsssm:///PATH"),
            (SecretStoreKind::Kubernetes, "ref+k8s://NAMESPACE/NAME"),
        ] {
            let refusal = AccessRefusal::Path {
                path: "p".to_owned(),
                kind,
            };
            assert!(refusal.hint().contains(form), "{kind}");
        }
    }

    #[test]
    fn an_unknown_store_is_answered_with_those_that_are_there() {
        let hint = |word: &str, known: &[&str]| {
            let refusal = AccessRefusal::UnknownStore {
                word: word.to_owned(),
                known: known.iter().map(|&name| name.to_owned()).collect(),
            };
            refusal.hint()
        };
        assert!(hint("db", &[]).contains("(there is none yet)"));
        assert!(hint("db", &["a", "b"]).contains("`secrets.stores.db`"));
        assert!(hint("db", &["a", "b"]).contains("(there are: a, b)"));
        for word in NEVER {
            assert!(
                hint(word, &[]).starts_with("no kind of store runs a command"),
                "{word}"
            );
        }
    }
}
