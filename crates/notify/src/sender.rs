//! Sends notifications. An error is returned to the caller and never fails an apply.

use std::time::Duration;

use reqwest::{Response, header::CONTENT_TYPE};
use url::Url;

use crate::{
    answer::refusal,
    dingtalk, email,
    error::NotifyError,
    feishu,
    message::{Notification, Rendering},
    slack,
    target::NotifyTarget,
    teams, webhook, wecom,
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::NotifyKind,
    retry::{self, RetryDecision, RetryPolicy},
    secrets::Secrets,
};

/// The time limit of one attempt.
const DEADLINE: Duration = Duration::from_secs(10);

/// The maximum number of bytes that are read from a response.
const ANSWER_BYTES: usize = 64 * 1024;

/// Sends messages to the configured receivers.
#[derive(Clone)]
pub struct Sender {
    http: reqwest::Client,
    secrets: Secrets,
    retries: RetryPolicy,
}

impl Sender {
    /// Creates a sender with a time limit of ten seconds per attempt.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new(secrets: Secrets) -> Result<Self, UserError> {
        let http = konverge_http::client()
            .timeout(DEADLINE)
            .build()
            .map_err(|error| {
                UserError::new(
                    ErrorKind::Internal,
                    format!("cannot build an HTTP client: {}", chain(&error)),
                )
            })?;
        let retries = RetryPolicy {
            attempts: 3,
            // Some chats have rate limits of one minute.
            total: Duration::from_secs(90),
            ..RetryPolicy::default()
        };
        Ok(Self {
            http,
            secrets,
            retries,
        })
    }

    /// Sends a notification. A signed webhook is retried with the same delivery id, so that its receiver recognizes
    /// duplicates. A chat message or a mail is retried only if it certainly did not arrive.
    ///
    /// # Errors
    /// The notification was not delivered.
    pub async fn send(&self, target: &NotifyTarget, message: &Notification) -> Result<(), NotifyError> {
        for secret in [Some(&target.url), target.key.as_ref()].into_iter().flatten() {
            self.secrets.learn(secret);
        }
        let url = target.check()?;
        let mask = |name: &str| self.secrets.mask_finished(name);
        let rendering = Rendering {
            language: target.language,
            mention: if message.topic.is_failure() {
                &target.mention
            } else {
                &[]
            },
            mask: &mask,
        };
        let delivery = uuid::Uuid::new_v4().to_string();
        // Only the receiver of a webhook recognizes a duplicate, so nothing else is sent again if it may have arrived.
        let is_repeatable = target.kind == NotifyKind::Webhook;
        let classify = |error: &NotifyError| match error {
            NotifyError::Refused { wait: Some(wait), .. }
            | NotifyError::Rejected { wait: Some(wait), .. } => RetryDecision::RetryAfter(*wait),
            NotifyError::Refused { status: 500.., .. } | NotifyError::Unreachable { .. } if is_repeatable => {
                RetryDecision::Retry
            }
            _ => RetryDecision::GiveUp,
        };
        if target.kind == NotifyKind::Email {
            let mail = email::mail(target, message, &rendering)?;
            let mut refused = Vec::new();
            for recipient in &target.to {
                let send = || email::send(target, &url, &mail, recipient, DEADLINE);
                match self.retries.run(classify, send).await {
                    Ok(()) => {}
                    Err(NotifyError::Refused { status, .. })
                        if is_of_recipient(status) && target.to.len() > 1 =>
                    {
                        refused.push(format!("{recipient} ({status})"));
                    }
                    // The error comes from the server or the login, so it would be the same for the next recipient.
                    Err(error) => return Err(error),
                }
            }
            if refused.is_empty() {
                return Ok(());
            }
            return Err(NotifyError::Recipients {
                name: target.name.clone(),
                taken: target.to.len() - refused.len(),
                all: target.to.len(),
                refused: refused.join(", "),
            });
        }
        let post = || self.post(target, &url, message, &rendering, &delivery);
        self.retries.run(classify, post).await
    }

    /// Sends one POST request. The signature contains the time, so each attempt has a new one.
    async fn post(
        &self,
        target: &NotifyTarget,
        url: &Url,
        message: &Notification,
        rendering: &Rendering<'_>,
        delivery: &str,
    ) -> Result<(), NotifyError> {
        let now = jiff::Timestamp::now();
        let key = target.key.as_deref().unwrap_or_default();
        let mut url = url.clone();
        let mut signed = Vec::new();
        let body = match target.kind {
            NotifyKind::Slack => slack::body(message, rendering),
            NotifyKind::Teams => teams::body(message, rendering),
            NotifyKind::Wecom => wecom::body(message, rendering),
            NotifyKind::Feishu => feishu::body(message, rendering, key, now.as_second()),
            NotifyKind::Dingtalk => {
                url = dingtalk::signed(url, key, now.as_millisecond());
                dingtalk::body(message, rendering)
            }
            NotifyKind::Webhook | NotifyKind::Email => {
                let body = message.document(rendering.mask).to_string();
                let body = self.secrets.mask_finished(&body);
                let time = now.as_second().to_string();
                signed.push(("x-konverge-delivery", delivery.to_owned()));
                signed.push(("x-konverge-signature-256", webhook::signature(key, &time, &body)));
                signed.push(("x-konverge-timestamp", time));
                body
            }
        };
        let mut request = self.http.post(url).header(CONTENT_TYPE, "application/json");
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let unreachable = |_: reqwest::Error| NotifyError::Unreachable {
            name: target.name.clone(),
        };
        let response = konverge_http::send_to_secret_host(request.body(body), "a receiver of notifications")
            .await
            .map_err(unreachable)?;
        let answers = match target.kind {
            NotifyKind::Dingtalk => Some(dingtalk::ANSWERS),
            NotifyKind::Feishu => Some(feishu::ANSWERS),
            NotifyKind::Wecom => Some(wecom::ANSWERS),
            NotifyKind::Teams | NotifyKind::Slack | NotifyKind::Webhook | NotifyKind::Email => None,
        };
        let status = response.status();
        if !status.is_success() {
            let asked = retry::retry_after(response.headers());
            // The status is enough for a result, even if the body cannot be read.
            let body = first_bytes(response).await.unwrap_or_default();
            let chat = answers.as_ref();
            return Err(refusal(&target.name, status.as_u16(), asked, chat, &body));
        }
        let body = match target.kind {
            NotifyKind::Slack | NotifyKind::Webhook | NotifyKind::Email => return Ok(()),
            _ => first_bytes(response).await.map_err(unreachable)?,
        };
        match answers {
            Some(answers) => answers.read(&target.name, &body),
            None => teams::read(&target.name, &body),
        }
    }
}

/// Returns true if a mail server refuses one recipient, in contrast to the login or the connection.
fn is_of_recipient(status: u16) -> bool {
    !matches!(status, 421 | 454 | 530 | 534 | 535 | 538)
}

/// Reads the beginning of a response.
async fn first_bytes(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES
        && let Some(chunk) = response.chunk().await?
    {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
