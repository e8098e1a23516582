//! [`CloudError`]: reasons why a login failed.

use konverge_base::error::SharedError;

/// Reasons why a login failed. No message contains what was sent, because that may be a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum CloudError {
    /// The environment contains no identity for this job.
    #[error("the environment holds no {cloud} identity: set {expected}")]
    NoIdentity {
        cloud: &'static str,
        expected: &'static str,
    },
    /// A variable or a file is invalid.
    #[error("{setting}")]
    Setting {
        setting: String,
        #[source]
        why: SharedError,
    },
    /// The service refused the login, or its response is not as documented.
    #[error("{what} could not be obtained")]
    Refused {
        what: String,
        #[source]
        why: SharedError,
    },
    /// The service did not respond, or is busy. A retry may help.
    #[error("{what} could not be obtained")]
    Unavailable {
        what: String,
        #[source]
        why: SharedError,
    },
}

impl CloudError {
    pub(super) fn setting(setting: impl Into<String>, why: impl Into<SharedError>) -> Self {
        Self::Setting {
            setting: setting.into(),
            why: why.into(),
        }
    }

    pub(super) fn refused(what: &str, why: impl Into<SharedError>) -> Self {
        Self::Refused {
            what: what.to_owned(),
            why: why.into(),
        }
    }
}
