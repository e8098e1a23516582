//! The errors of a notification.

use std::time::Duration;

use konverge_base::error::{ErrorKind, UserError};

/// A notification was not delivered. Never contains the address or the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum NotifyError {
    /// The environment variable with the address is not set.
    #[error("{name} is not set")]
    NotSet { name: String },
    /// The URL is invalid, or not HTTPS.
    #[error("{name} is not a URL that starts with https://")]
    Address { name: String },
    /// The URL does not belong to a mail server.
    #[error("{name} is not a URL such as smtps://USER@HOST, without a password")]
    MailServer { name: String },
    /// The URL belongs to an Office 365 connector, which Microsoft has retired.
    #[error("{name} is the address of an Office 365 connector, which Microsoft has retired")]
    Retired { name: String },
    /// The key is missing, so that anybody could forge a message.
    #[error("the receiver in {name} has no key")]
    NoKey { name: String },
    /// `from` or `to` is not a mail address.
    #[error("the receiver in {name} has a `from` or `to` that is not a mail address")]
    MailAddress { name: String },
    /// There was no response, so it is unknown whether the message arrived.
    #[error("no answer from the address in {name}")]
    Unreachable { name: String },
    /// The certificate of a mail server is not trusted.
    #[error("the mail server in {name} has a certificate that is not trusted: {why}")]
    Untrusted { name: String, why: String },
    /// The mail server does not support TLS.
    #[error("the mail server in {name} offers no STARTTLS, and nothing is sent without TLS")]
    NoStartTls { name: String },
    /// No server listens at the address.
    #[error("nothing listens at the address in {name}: the connection was refused")]
    Closed { name: String },
    /// A mail server accepted the mail only for some of the recipients.
    #[error(
        "the mail server in {name} refused {refused}; it accepted the mail for {taken} of {all} recipients"
    )]
    Recipients {
        name: String,
        /// The refused recipients, each with its status.
        refused: String,
        taken: usize,
        all: usize,
    },
    /// The response has an error status.
    #[error("the address in {name} answered {status}")]
    Refused {
        name: String,
        status: u16,
        /// The pause before the next attempt, if the receiver has a rate limit.
        wait: Option<Duration>,
    },
    /// The response has status 200, but reports an error.
    #[error("the receiver in {name} answered code {code}: {says}")]
    Rejected {
        name: String,
        code: i64,
        /// The message of the receiver on one line.
        says: String,
        /// The hint for this code.
        hint: Option<&'static str>,
        /// The pause before the next attempt, if the code is that of a rate limit.
        wait: Option<Duration>,
    },
    /// The response has a successful status, but does not confirm that the message was accepted.
    #[error("the answer from the address in {name} does not confirm the message, which may not have arrived")]
    Unclear { name: String },
}

impl From<NotifyError> for UserError {
    fn from(error: NotifyError) -> Self {
        let hint = match &error {
            NotifyError::NotSet { .. } | NotifyError::Address { .. } => {
                Some("set the variable from a secret in the job's `env:`")
            }
            NotifyError::MailServer { .. } => {
                Some("the password is in the variable that `notify[].key_env` names; `smtp://` uses STARTTLS")
            }
            NotifyError::Retired { .. } => Some(
                "create a workflow in Teams that posts when a webhook request is received, and use its URL",
            ),
            NotifyError::NoKey { .. } => {
                Some("name the variable with the key in `notify[].key_env`, and set it")
            }
            NotifyError::Refused { status: 535, .. } => {
                Some("check the user in the URL, and the password in the variable of `notify[].key_env`")
            }
            NotifyError::Untrusted { .. } => Some(
                "if an authority of your own signed it, name the file with its certificate in SSL_CERT_FILE; the host in the URL must be one that the certificate names",
            ),
            NotifyError::NoStartTls { .. } => {
                Some("write `smtps://` if the server speaks TLS from the start, mostly on port 465")
            }
            NotifyError::Closed { .. } => {
                Some("check host and port: without one, `smtps://` means 465 and `smtp://` means 587")
            }
            NotifyError::Recipients { .. } => Some("check these addresses in `notify[].to`"),
            NotifyError::Unclear { .. } => Some("check that the address is that of this `kind`"),
            NotifyError::Rejected { hint, .. } => *hint,
            _ => None,
        };
        let failure = UserError::new(ErrorKind::Config, error.to_string());
        hint.into_iter().fold(failure, UserError::hint)
    }
}
