//! Sends notifications. A failure is returned to the caller, which continues: it never fails an apply.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::message::Notification;
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    retry::{self, RetryDecision, RetryPolicy},
    secrets::Secrets,
};

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An incoming webhook of Slack or a compatible chat.
    Slack,
    /// A JSON POST with an HMAC signature.
    Webhook,
}

/// A receiver. The URL is a secret, because everybody who knows it may post.
#[derive(Clone)]
pub struct NotifyTarget {
    /// The form of the message.
    pub kind: Kind,
    /// Its name in messages: the environment variable with the URL.
    pub name: String,
    /// The address that is posted to; it is a secret.
    pub url: String,
    /// The signing key of a webhook.
    pub key: Option<String>,
}

/// A notification was not delivered. Never contains the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum NotifyError {
    /// The URL is invalid, or not HTTPS.
    #[error("{name} is not a URL that starts with https://")]
    Address { name: String },
    /// Without a key anybody could forge a webhook.
    #[error("the webhook in {name} has no signing key")]
    NoKey { name: String },
    /// No answer.
    #[error("no answer from the address in {name}")]
    Unreachable { name: String },
    /// A negative answer.
    #[error("the address in {name} answered {status}")]
    Refused {
        name: String,
        status: u16,
        /// How long the receiver asks to wait.
        wait: Option<Duration>,
    },
}

impl From<NotifyError> for UserError {
    fn from(error: NotifyError) -> Self {
        let failure = UserError::new(ErrorKind::Config, error.to_string());
        match error {
            NotifyError::NoKey { .. } => failure.hint("name the variable with the key in `notify[].key_env`"),
            NotifyError::Address { .. } => failure.hint("set the variable from a secret in the job's `env:`"),
            _ => failure,
        }
    }
}

/// Sends messages to the configured receivers.
#[derive(Clone)]
pub struct Sender {
    http: reqwest::Client,
    secrets: Secrets,
    patience: RetryPolicy,
}

impl Sender {
    /// A sender with a deadline of ten seconds per attempt.
    ///
    /// # Errors
    /// No HTTP client can be built.
    pub fn new(secrets: Secrets) -> Result<Self, UserError> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| {
                UserError::new(ErrorKind::Internal, format!("no HTTP client: {}", chain(&error)))
            })?;
        let patience = RetryPolicy {
            attempts: 3,
            total: Duration::from_secs(30),
            ..RetryPolicy::default()
        };
        Ok(Self {
            http,
            secrets,
            patience,
        })
    }

    /// Sends a notification. A signed webhook is retried with the same delivery id, by which its receiver
    /// recognizes duplicates. A chat message is retried only if it certainly did not arrive.
    ///
    /// # Errors
    /// It was not delivered.
    pub async fn send(&self, target: &NotifyTarget, message: &Notification) -> Result<(), NotifyError> {
        for secret in [Some(&target.url), target.key.as_ref()].into_iter().flatten() {
            self.secrets.learn(secret);
        }
        let local = target.url.starts_with("http://127.0.0.1:");
        if !target.url.starts_with("https://") && !local {
            return Err(NotifyError::Address {
                name: target.name.clone(),
            });
        }
        let (document, key) = match (target.kind, &target.key) {
            (Kind::Slack, _) => (message.slack(), None),
            (Kind::Webhook, Some(key)) => (message.document(), Some(key)),
            (Kind::Webhook, None) => {
                return Err(NotifyError::NoKey {
                    name: target.name.clone(),
                });
            }
        };
        let body = self.secrets.mask_finished(&document.to_string());
        let delivery = uuid::Uuid::new_v4().to_string();
        let repeatable = key.is_some();
        let classify = |error: &NotifyError| match error {
            NotifyError::Refused { wait: Some(wait), .. } => RetryDecision::RetryAfter(*wait),
            NotifyError::Refused { status: 500.., .. } | NotifyError::Unreachable { .. } if repeatable => {
                RetryDecision::Retry
            }
            _ => RetryDecision::GiveUp,
        };
        self.patience
            .run(classify, || {
                self.send_once(target, key.map(String::as_str), &delivery, &body)
            })
            .await
    }

    async fn send_once(
        &self,
        target: &NotifyTarget,
        key: Option<&str>,
        delivery: &str,
        body: &str,
    ) -> Result<(), NotifyError> {
        let mut request = self
            .http
            .post(&target.url)
            .header("content-type", "application/json");
        if let Some(key) = key {
            let timestamp = jiff::Timestamp::now().as_second().to_string();
            request = request
                .header("x-konverge-delivery", delivery)
                .header("x-konverge-timestamp", &timestamp)
                .header("x-konverge-signature-256", signature(key, &timestamp, body));
        }
        let response = request
            .body(body.to_owned())
            .send()
            .await
            .map_err(|_| NotifyError::Unreachable {
                name: target.name.clone(),
            })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let wait = retry::retry_after(response.headers());
        Err(NotifyError::Refused {
            name: target.name.clone(),
            status: status.as_u16(),
            wait: wait.filter(|_| status == 429),
        })
    }
}

/// `sha256=` and the HMAC-SHA-256 of `timestamp.body` in hexadecimal: a receiver verifies it and refuses old
/// timestamps.
pub fn signature(key: &str, timestamp: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}
