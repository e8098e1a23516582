//! The errors of secret stores. They contain the store, the path and the HTTP status, never a value.

use crate::CloudError;
use konverge_base::error::{ErrorKind, SharedError, UserError};

/// A secret could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("secret store `{store}`: `{path}` {problem}")]
pub struct SecretStoreError {
    /// The name of the store under `secrets.stores`.
    pub store: String,
    /// The path in the store.
    pub path: String,
    /// The reason why the secret cannot be read.
    #[source]
    pub problem: SecretProblem,
}

/// Reasons why a secret cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum SecretProblem {
    /// There is no such secret or version.
    #[error("is not there{}", http(.0))]
    Missing(Option<u16>),
    /// The store denies access to the secret.
    #[error("was denied{}", http(.status))]
    Denied {
        status: Option<u16>,
        #[source]
        why: SharedError,
    },
    /// The store refuses the login.
    #[error("was denied{}", http(.status))]
    Login {
        status: Option<u16>,
        #[source]
        why: SharedError,
    },
    /// The store does not respond, or is busy.
    #[error("could not be read{}", http(.status))]
    Unavailable {
        status: Option<u16>,
        #[source]
        why: SharedError,
    },
    /// The store's response is not as documented.
    #[error("could not be read{}", http(.status))]
    Unexpected {
        status: Option<u16>,
        #[source]
        why: SharedError,
    },
    /// The path does not begin with the mount of an engine.
    #[error("is not below the mount of a KV engine")]
    NoMount,
    /// The job has no such environment variable.
    #[error("is not set in this job")]
    NotSet,
    /// The secret has several keys, and the reference names none.
    #[error("has keys, and the reference names none of them")]
    KeyNeeded(Vec<String>),
    /// The secret has no such key.
    #[error("has no key `{0}`")]
    NoKey(String),
    /// The reference names a key, and the value is not a JSON document.
    #[error("is not a JSON document, so it has no keys")]
    NotJson,
    /// The value is empty.
    #[error("is empty")]
    Empty,
    /// The file cannot be decrypted.
    #[error("cannot be decrypted: {0}")]
    File(String),
    /// The job has no key of any recipient of the file.
    #[error("cannot be decrypted by this job; its recipients: {0}")]
    NoKeyOfFile(String),
    /// The run has no credentials for the store.
    #[error("could not be read")]
    NoCredentials(#[source] SharedError),
}

fn http(status: &Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(" (HTTP {status})"))
}

impl SecretProblem {
    /// Returns true if the problem concerns the whole store, so that every other secret in the store has the problem
    /// too.
    pub fn is_of_store(&self) -> bool {
        matches!(
            self,
            Self::Login { .. } | Self::Unavailable { .. } | Self::NoCredentials(_)
        )
    }
}

impl From<CloudError> for SecretProblem {
    fn from(error: CloudError) -> Self {
        let (status, why) = (None, error.clone().into());
        match error {
            CloudError::NoIdentity { .. } | CloudError::Setting { .. } => Self::NoCredentials(why),
            CloudError::Refused { .. } => Self::Login { status, why },
            CloudError::Unavailable { .. } => Self::Unavailable { status, why },
        }
    }
}

impl SecretStoreError {
    /// Creates an error about `path` in `store`.
    pub fn new(store: &str, path: &str, problem: SecretProblem) -> Self {
        Self {
            store: store.to_owned(),
            path: path.to_owned(),
            problem,
        }
    }
}

impl From<SecretStoreError> for UserError {
    fn from(error: SecretStoreError) -> Self {
        let SecretStoreError { store, path, .. } = &error;
        let hint = match &error.problem {
            SecretProblem::Missing(_) => {
                format!("write the secret into the store, or correct the path `{path}` in the reference")
            }
            SecretProblem::Denied { .. } => {
                format!(
                    "let the role of this job read `{path}`; the role is written under `secrets.stores.{store}`"
                )
            }
            SecretProblem::Unavailable { .. } => {
                format!(
                    "run the command again when the secret store answers; its address is written under `secrets.stores.{store}`"
                )
            }
            SecretProblem::Login { .. } | SecretProblem::Unexpected { .. } => {
                format!("compare the keys of `secrets.stores.{store}` with the store")
            }
            SecretProblem::NoMount => {
                format!("set `secrets.stores.{store}.mount`, or write the mount first in the path")
            }
            SecretProblem::NotSet => {
                format!(
                    "set the variable in the step that runs konverge: `env: {{{path}: ${{{{ secrets.{path} }}}}}}`"
                )
            }
            SecretProblem::KeyNeeded(keys) => {
                let keys: Vec<_> = keys
                    .iter()
                    .take(10)
                    .map(|key| format!("`#/{}`", key.escape_debug()))
                    .collect();
                format!("add one of {} to the reference", keys.join(", "))
            }
            SecretProblem::NoKey(_) | SecretProblem::NotJson => {
                "correct the key after `#/` in the reference".to_owned()
            }
            SecretProblem::Empty => "write a value into the store".to_owned(),
            SecretProblem::File(_) => {
                format!("`sops decrypt {path}` says more; encrypt the file again and commit it")
            }
            SecretProblem::NoKeyOfFile(_) => {
                format!(
                    "give the job an identity in `SOPS_AGE_KEY`, or write the key into `secrets.stores.{store}.keys`"
                )
            }
            SecretProblem::NoCredentials(_) => {
                format!("give the job the credentials that `secrets.stores.{store}` needs")
            }
        };
        UserError::from_error(ErrorKind::Secret, error).hint(hint)
    }
}
