//! The errors of a push.

use std::time::Duration;

use oci_client::errors::OciDistributionError;

use konverge_base::{
    error::{ErrorKind, UserError, chain},
    interrupt::Stopped,
    model::text::visible,
};

/// An error while an artifact is pushed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The reference is not that of an artifact.
    #[error("`{}` is not an address of an artifact: {why}", visible(.text))]
    Reference {
        /// The invalid reference.
        text: String,
        /// The rule that the reference breaks.
        why: &'static str,
    },
    /// The registry, or a server to which it redirects, did not respond.
    #[error("the registry `{host}` did not accept the artifact: `{}` did not answer within {} s", visible(.asked), .limit.as_secs_f64())]
    Silent {
        /// The host of the registry.
        host: String,
        /// The server that did not respond.
        asked: String,
        /// The time limit for a response.
        limit: Duration,
    },
    /// The push took too long, although the registry responded.
    #[error("the registry `{host}` did not accept the artifact within {} s", .limit.as_secs_f64())]
    Slow {
        /// The host of the registry.
        host: String,
        /// The time limit for the push.
        limit: Duration,
    },
    /// The run was interrupted during the push.
    #[error("the push to the registry `{host}` was stopped: {stopped}")]
    Stopped {
        /// The host of the registry.
        host: String,
        /// The reason for the interruption.
        #[source]
        stopped: Stopped,
    },
    /// The registry refused a request, or could not be reached.
    #[error("the registry `{host}` did not accept the artifact: {}", visible(&chain(.source)))]
    Registry {
        /// The host of the registry.
        host: String,
        /// The error of the HTTP client.
        source: Box<OciDistributionError>,
    },
    /// The tag points to other content.
    #[error(
        "`{reference}` exists with other content: the registry has `{found}`, and this artifact is `{ours}`"
    )]
    OtherContent {
        /// The reference of the artifact.
        reference: String,
        /// The digest that the tag points to.
        found: String,
        /// The digest of the artifact to push.
        ours: String,
    },
    /// The registry returns another manifest than the pushed one.
    #[error("the registry `{host}` returned another manifest than was pushed: `{found}` instead of `{ours}`")]
    Lies {
        /// The host of the registry.
        host: String,
        /// The digest that the registry returns.
        found: String,
        /// The digest of the pushed manifest.
        ours: String,
    },
}

impl From<PublishError> for UserError {
    fn from(error: PublishError) -> Self {
        let kind = match &error {
            PublishError::Reference { .. } => ErrorKind::Usage,
            PublishError::Stopped { .. } => ErrorKind::Interrupted,
            _ => ErrorKind::Store,
        };
        let failure = Self::new(kind, error.to_string());
        match error {
            PublishError::Reference { .. } => failure.hint("write `oci://HOST/NAME:TAG`, with a tag of its own for each content"),
            PublishError::Silent { asked, .. } => failure
                .hint(format!("check that this machine reaches `{}`, then run the command again", visible(&asked)))
                .hint(RESUMES),
            PublishError::Slow { .. } => failure
                .hint("ask the people who run the registry why it is slow, then run the command again")
                .hint(RESUMES),
            PublishError::Stopped { .. } => failure.hint(format!("run the command again: {RESUMES}")),
            PublishError::Registry { source, .. } => failure.hint(remedy(&source)),
            PublishError::OtherContent { .. } => failure
                .hint("push to another tag, such as one that holds the commit: a tag that changes would be a release that nobody reviewed"),
            PublishError::Lies { .. } => failure.hint("do not deploy from this registry until somebody has looked at it"),
        }
    }
}

const RESUMES: &str = "parts that the registry already has are not pushed again";

/// Returns the hint for an error of the HTTP client.
fn remedy(error: &OciDistributionError) -> &'static str {
    match error {
        OciDistributionError::RequestError(error) if error.is_redirect() => {
            "the registry sends requests elsewhere again and again: check the host in the address"
        }
        OciDistributionError::RequestError(error) if error.is_connect() => {
            "check the host and the port in the address, and that this machine reaches them"
        }
        OciDistributionError::DigestError(_) => {
            "do not deploy from this registry until somebody has looked at it"
        }
        _ => {
            "log in with `docker login`, or set KONVERGE_OCI_REGISTRY, KONVERGE_OCI_USERNAME and KONVERGE_OCI_PASSWORD"
        }
    }
}
