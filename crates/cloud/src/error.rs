//! [`CloudError`]: reasons why there are no credentials.

use konverge_base::error::SharedError;

/// Reasons why there are no credentials. No message contains anything that was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum CloudError {
    /// The environment does not say who this job is.
    #[error("the environment holds no {cloud} identity: set {expected}")]
    NoIdentity {
        cloud: &'static str,
        expected: &'static str,
    },
    /// A variable or a file is unusable.
    #[error("{setting}")]
    Setting {
        setting: String,
        #[source]
        why: SharedError,
    },
    /// The service refused, or its answer is not as documented.
    #[error("{what} could not be obtained")]
    Refused {
        what: String,
        #[source]
        why: SharedError,
    },
    /// The service did not answer, or is busy.
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
