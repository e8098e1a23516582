//! HTTP requests to secret stores: one client, one retry policy, deadlines, no redirects.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, RequestBuilder, StatusCode};

use super::SecretProblem;
use crate::retry::{self, RetryDecision, RetryPolicy};

const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// The maximum length of a server's own words in a message.
const SHOWN: usize = 200;

/// Sends the requests of one store.
#[derive(Clone)]
pub(super) struct SecretHttpClient {
    client: Client,
    retry: RetryPolicy,
}

/// The answer to a request: a success, or a refusal that a retry does not improve.
pub(super) struct SecretHttpAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// A failed attempt.
struct Attempt {
    status: Option<u16>,
    why: String,
    after: Option<Duration>,
}

impl SecretHttpClient {
    pub fn new() -> Result<Self, SecretProblem> {
        let client = Client::builder()
            .timeout(REQUEST_DEADLINE)
            .connect_timeout(CONNECT_DEADLINE)
            // A redirect could send a token elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| unavailable(crate::error::chain(&error)))?;
        Ok(Self {
            client,
            retry: RetryPolicy::default(),
        })
    }

    /// Sends a request that may be repeated.
    ///
    /// # Errors
    /// No answer, or only answers that the server is busy or broken.
    pub async fn send(
        &self,
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<SecretHttpAnswer, SecretProblem> {
        let classify = |attempt: &Attempt| match attempt.after {
            Some(after) => RetryDecision::RetryAfter(after),
            None => RetryDecision::Retry,
        };
        let answer = self.retry.run(classify, || self.attempt(make(&self.client)));
        answer.await.map_err(|attempt| SecretProblem::Unavailable {
            status: attempt.status,
            why: attempt.why,
        })
    }

    async fn attempt(&self, request: RequestBuilder) -> Result<SecretHttpAnswer, Attempt> {
        let network = |error: reqwest::Error| Attempt {
            status: None,
            why: crate::error::chain(&error.without_url()),
            after: None,
        };
        let answer = request.send().await.map_err(network)?;
        let status = answer.status();
        let after = retry::retry_after(answer.headers());
        let body = answer.bytes().await.map_err(network)?;
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(Attempt {
                status: Some(status.as_u16()),
                why: excerpt(&String::from_utf8_lossy(&body)),
                after,
            });
        }
        Ok(SecretHttpAnswer { status, body })
    }
}

impl SecretHttpAnswer {
    /// The problem that an answer without success means. `words` reads the server's own words.
    pub fn problem(&self, words: impl Fn(&serde_json::Value) -> Option<String>) -> SecretProblem {
        let status = Some(self.status.as_u16());
        let body: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let why = body
            .as_ref()
            .and_then(words)
            .unwrap_or_else(|| "no reason given".to_owned());
        let why = excerpt(&why);
        match self.status {
            StatusCode::NOT_FOUND => SecretProblem::Missing(status),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => SecretProblem::Denied { status, why },
            _ => SecretProblem::Unavailable { status, why },
        }
    }
}

pub(super) fn unavailable(why: impl Into<String>) -> SecretProblem {
    SecretProblem::Unavailable {
        status: None,
        why: why.into(),
    }
}

fn excerpt(text: &str) -> String {
    let text: String = text.chars().take(SHOWN).collect();
    text.trim().escape_debug().to_string()
}
