//! Sends a mail over SMTP. <https://www.rfc-editor.org/rfc/rfc5321> The mail is plain text, so that a mail client
//! interprets nothing in it.

use std::{error::Error as _, time::Duration};

use konverge_base::error::chain;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::Envelope,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{Error, authentication::Credentials},
};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::{
    error::NotifyError,
    escape::inert,
    message::{Notification, Rendering},
    target::{NotifyTarget, is_local},
    wording,
};

/// The maximum size in bytes. A longer mail is cut between two stacks.
const LIMIT: usize = 20_000;

/// The pause after a response of the class *try again later*.
const LATER: Duration = Duration::from_secs(5);

/// The maximum length of a certificate error that is shown.
const LONGEST_REASON: usize = 200;

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// Creates the mail. Its id lets a server recognize a mail that is sent again.
pub(crate) fn mail(
    target: &NotifyTarget,
    message: &Notification,
    rendering: &Rendering<'_>,
) -> Result<Message, NotifyError> {
    let wrong = || NotifyError::MailAddress {
        name: target.name.clone(),
    };
    let mailbox = |address: &str| {
        let address: Address = address.parse().map_err(|_| wrong())?;
        Ok::<_, NotifyError>(Mailbox::new(None, address))
    };
    let from = target.from.as_deref().ok_or_else(wrong)?;
    let subject = message.text(rendering.language, 0, &|name| inert(&(rendering.mask)(name)));
    let mut mail = Message::builder()
        .from(mailbox(from)?)
        .subject(format!("[Konverge {}] {}", subject.repository, subject.title))
        .message_id(None)
        .header(ContentType::TEXT_PLAIN)
        // The header tells mail servers to send no absence notice.
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
    for address in &target.to {
        mail = mail.to(mailbox(address)?);
    }
    mail.body(text(message, rendering)).map_err(|_| wrong())
}

pub(crate) fn text(message: &Notification, rendering: &Rendering<'_>) -> String {
    message.fit(LIMIT, |named| {
        let shown = message.text(rendering.language, named, &|name| inert(&(rendering.mask)(name)));
        let mut text = format!("{}: {}\n", shown.repository, shown.title);
        text.extend(shown.stacks.iter().map(|stack| format!("\n- {stack}")));
        text.extend(shown.more.map(|line| format!("\n{line}")));
        let label = wording::link(rendering.language);
        text.extend(message.link().map(|url| format!("\n\n{label}: {url}")));
        text.push('\n');
        text
    })
}

/// Sends a mail once, to one recipient: with several recipients in one transaction, a refused one stops the mail for
/// all.
pub(crate) async fn send(
    target: &NotifyTarget,
    url: &Url,
    mail: &Message,
    recipient: &str,
    timeout: Duration,
) -> Result<(), NotifyError> {
    let transport = transport(target, url, timeout).map_err(|error| failure(target, &error))?;
    let wrong = || NotifyError::MailAddress {
        name: target.name.clone(),
    };
    let recipient: Address = recipient.parse().map_err(|_| wrong())?;
    let from = mail.envelope().from().cloned();
    let envelope = Envelope::new(from, vec![recipient]).map_err(|_| wrong())?;
    let formatted = mail.formatted();
    let sent = tokio::time::timeout(timeout * 2, transport.send_raw(&envelope, &formatted)).await;
    match sent {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failure(target, &error)),
        Err(_) => Err(NotifyError::Unreachable {
            name: target.name.clone(),
        }),
    }
}

/// Returns the connection to the server, with TLS from the start (`smtps`) or by STARTTLS before any command (`smtp`).
fn transport(target: &NotifyTarget, url: &Url, timeout: Duration) -> Result<Transport, Error> {
    let host = url.host_str().unwrap_or_default();
    let (builder, port) = match url.scheme() {
        "smtps" => (Transport::relay(host)?, 465),
        _ if is_local(url, "smtp") => (Transport::builder_dangerous(host), 25),
        _ => (Transport::starttls_relay(host)?, 587),
    };
    let builder = builder.port(url.port().unwrap_or(port)).timeout(Some(timeout));
    let user = percent_decode_str(url.username()).decode_utf8_lossy();
    Ok(match &target.key {
        Some(password) if !user.is_empty() => {
            let credentials = Credentials::new(user.into_owned(), password.clone());
            builder.credentials(credentials).build()
        }
        _ => builder.build(),
    })
}

/// Returns the error for a response other than a success. The server has then not accepted the mail.
fn failure(target: &NotifyTarget, error: &Error) -> NotifyError {
    let name = target.name.clone();
    match error.status() {
        Some(code) => NotifyError::Refused {
            name,
            status: code.into(),
            wait: error.is_transient().then_some(LATER),
        },
        None => not_reached(name, error),
    }
}

/// Returns why the server was not reached. The library has the reason only in the texts of its error and of its causes.
fn not_reached(name: String, error: &Error) -> NotifyError {
    const CERTIFICATE: &str = "invalid peer certificate: ";
    let text = chain(error);
    if let Some((_, why)) = text.split_once(CERTIFICATE) {
        let why = why.chars().take(LONGEST_REASON).collect();
        return NotifyError::Untrusted { name, why };
    }
    if error.is_client() && text.contains("STARTTLS") {
        return NotifyError::NoStartTls { name };
    }
    let mut cause = error.source();
    while let Some(found) = cause {
        let of_system = found.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if of_system == Some(std::io::ErrorKind::ConnectionRefused) {
            return NotifyError::Closed { name };
        }
        cause = found.source();
    }
    NotifyError::Unreachable { name }
}
