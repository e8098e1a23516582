//! [`NotifyTarget`]: a receiver with its address and key, and the check whether messages may be sent to it.

use url::Url;

use konverge_base::model::{NotifyKind, NotifyLanguage};

use crate::error::NotifyError;

/// The suffix of the host names of the Office 365 connectors, which Microsoft has retired.
const CONNECTORS: &str = ".webhook.office.com";

/// A receiver. Its URL is a secret, because everybody who knows it can post messages.
#[derive(Clone)]
pub struct NotifyTarget {
    /// The kind of the receiver, which decides the protocol.
    pub kind: NotifyKind,
    /// The name of the receiver in messages: the environment variable with the URL.
    pub name: String,
    /// The URL that messages are sent to. It is a secret.
    pub url: String,
    /// The key of a signature, or the password of a mail server.
    pub key: Option<String>,
    /// The language of the message.
    pub language: NotifyLanguage,
    /// The people who are mentioned in a message about a failure.
    pub mention: Vec<String>,
    /// The sender address of a mail.
    pub from: Option<String>,
    /// The recipient addresses of a mail.
    pub to: Vec<String>,
}

impl NotifyTarget {
    /// Returns the URL if messages may be sent to it. Nothing is sent.
    ///
    /// # Errors
    /// The URL is not encrypted or not that of this kind of receiver, or the key is missing.
    pub fn check(&self) -> Result<Url, NotifyError> {
        let name = || self.name.clone();
        let url = Url::parse(&self.url).ok().filter(Url::has_host);
        let url = match self.kind {
            NotifyKind::Email => url
                .filter(|url| matches!(url.scheme(), "smtps" | "smtp") && url.password().is_none())
                .ok_or_else(|| NotifyError::MailServer { name: name() })?,
            _ => url
                .filter(|url| url.scheme() == "https" || is_local(url, "http"))
                .ok_or_else(|| NotifyError::Address { name: name() })?,
        };
        let host = url.host_str().unwrap_or_default();
        if self.kind == NotifyKind::Teams && host.ends_with(CONNECTORS) {
            return Err(NotifyError::Retired { name: name() });
        }
        let logs_in = self.kind == NotifyKind::Email && !url.username().is_empty();
        if self.key.is_none() && (logs_in || self.kind.needs_key()) {
            return Err(NotifyError::NoKey { name: name() });
        }
        Ok(url)
    }
}

/// Returns true if the URL has this unencrypted scheme and is on this machine.
pub(crate) fn is_local(url: &Url, scheme: &str) -> bool {
    url.scheme() == scheme && url.host_str() == Some("127.0.0.1") && url.port().is_some()
}
