//! Why an artifact is not published.

use oci_client::errors::OciDistributionError;

use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::text::visible,
};

/// The error of a push.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The address is not one of an artifact.
    #[error("`{}` is not an address of an artifact: {why}", visible(.text))]
    Reference {
        /// The address.
        text: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The registry did not answer in time.
    #[error("the registry `{host}` did not answer within {seconds} s")]
    Slow {
        /// The registry.
        host: String,
        /// How long it had.
        seconds: u64,
    },
    /// The registry refused a request, or could not be reached.
    #[error("the registry `{host}` did not take the artifact: {}", visible(&chain(.source)))]
    Registry {
        /// The registry.
        host: String,
        /// What the client says.
        source: Box<OciDistributionError>,
    },
    /// The tag has other content.
    #[error("`{reference}` exists with other content: it is `{found}`, and this is `{ours}`")]
    OtherContent {
        /// The artifact.
        reference: String,
        /// The digest of what is there.
        found: String,
        /// The digest of what was to be pushed.
        ours: String,
    },
    /// The registry gives something else than it took.
    #[error("the registry `{host}` gives another manifest than it took: `{found}` instead of `{ours}`")]
    Lies {
        /// The registry.
        host: String,
        /// The digest of what it gives.
        found: String,
        /// The digest of what was pushed.
        ours: String,
    },
}

impl From<PublishError> for UserError {
    fn from(error: PublishError) -> Self {
        let kind = match &error {
            PublishError::Reference { .. } => ErrorKind::Usage,
            _ => ErrorKind::Store,
        };
        let failure = Self::new(kind, error.to_string());
        match error {
            PublishError::Reference { .. } => failure.hint("write `oci://HOST/NAME:TAG`, with a tag of its own for each content"),
            PublishError::Slow { .. } => failure.hint("run it again: what was pushed is not pushed twice"),
            PublishError::Registry { .. } => failure
                .hint("log in with `docker login`, or set KONVERGE_OCI_REGISTRY, KONVERGE_OCI_USERNAME and KONVERGE_OCI_PASSWORD"),
            PublishError::OtherContent { .. } => failure
                .hint("push to another tag, such as one that holds the commit: a tag that changes would be a release that nobody reviewed"),
            PublishError::Lies { .. } => failure.hint("do not deploy from this registry until somebody has looked at it"),
        }
    }
}
