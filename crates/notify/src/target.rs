//! [`NotifyTarget`]: a receiver with its address and key, and whether it may be used.

use url::Url;

use konverge_base::model::{NotifyKind, NotifyLanguage};

use crate::error::NotifyError;

/// The hosts of the connectors that Microsoft has retired end so.
const CONNECTORS: &str = ".webhook.office.com";

/// A receiver. The URL is a secret, because everybody who knows it may post.
#[derive(Clone)]
pub struct NotifyTarget {
    /// The protocol.
    pub kind: NotifyKind,
    /// Its name in messages: the environment variable with the URL.
    pub name: String,
    /// The address that is posted to; it is a secret.
    pub url: String,
    /// The key of a signature, or the password of a mail server.
    pub key: Option<String>,
    /// The language of the message.
    pub language: NotifyLanguage,
    /// Who is mentioned if something failed.
    pub mention: Vec<String>,
    /// The address that a mail comes from.
    pub from: Option<String>,
    /// The addresses that a mail goes to.
    pub to: Vec<String>,
}

impl NotifyTarget {
    /// The address, if something may be sent there. Nothing is sent.
    ///
    /// # Errors
    /// The address is not encrypted or not of the kind, or a key is missing.
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

/// Returns true for a port of this machine in clear text.
pub(crate) fn is_local(url: &Url, scheme: &str) -> bool {
    url.scheme() == scheme && url.host_str() == Some("127.0.0.1") && url.port().is_some()
}
