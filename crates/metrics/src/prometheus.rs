//! [`Prometheus`]: a client for one server.

use std::{fmt, time::Duration};

use konverge_http::BodyError;
use reqwest::{
    Response,
    header::{AUTHORIZATION, HeaderValue},
};
use url::{Url, form_urlencoded};

use crate::{Measurement, MetricsError, address::query_url, answer};
use konverge_base::{error::chain, secrets::without_secrets};

/// The maximum duration of a query. It is also sent to the server.
const DEADLINE: Duration = Duration::from_secs(30);
/// The maximum size of a response in bytes.
pub(crate) const ANSWER_BYTES: usize = 1024 * 1024;
/// The maximum length of a server's text in a message, in characters.
const SHOWN: usize = 300;

/// A server with Prometheus' HTTP API. Redirects are not followed, because they could send the token to another
/// host.
#[derive(Clone)]
pub struct Prometheus {
    http: reqwest::Client,
    query_url: Url,
    token: Option<String>,
    authorization: Option<HeaderValue>,
    pub(crate) deadline: Duration,
}

/// Shows neither the address nor the token.
impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

impl Prometheus {
    /// Creates a client for a server that has `/api/v1/query` below this address, with a bearer token. Sends no
    /// request.
    ///
    /// # Errors
    /// The address is neither HTTPS nor on this machine, or contains credentials; or the token is invalid in a
    /// header.
    pub fn new(address: &str, token: Option<&str>) -> Result<Self, MetricsError> {
        let query_url = query_url(address)?;
        let authorization = token.map(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).ok();
            let mut value = value
                .filter(|_| !token.trim().is_empty())
                .ok_or(MetricsError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let http = konverge_http::client()
            .build()
            .map_err(|error| MetricsError::Client { why: error.into() })?;
        Ok(Self {
            http,
            query_url,
            token: token.map(str::to_owned),
            authorization: authorization.transpose()?,
            deadline: DEADLINE,
        })
    }

    /// Evaluates an expression at the present time; with `over`, its average over that time. Sends one request; the
    /// caller decides about a repetition.
    ///
    /// # Errors
    /// No response, or a response without a measurement.
    pub async fn query(&self, expression: &str, over: Option<Duration>) -> Result<Measurement, MetricsError> {
        if expression.trim().is_empty() || over.is_some_and(|over| over.as_millis() == 0) {
            return Err(MetricsError::Expression);
        }
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", &averaged(expression, over))
            .append_pair("timeout", &format!("{}ms", self.deadline.as_millis()))
            .finish();
        let mut request = self
            .http
            .post(self.query_url.clone())
            .timeout(self.deadline)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = konverge_http::send(request).await;
        let response = response.map_err(|error| self.no_answer(error))?;
        match response.status().as_u16() {
            status @ (401 | 403 | 407) => Err(MetricsError::Unauthorized { status }),
            status @ 300..=399 => Err(MetricsError::Redirect { status }),
            status => answer::read(status, &self.body(response).await?, |text| self.redacted(text)),
        }
    }

    async fn body(&self, response: Response) -> Result<Vec<u8>, MetricsError> {
        let body = konverge_http::read_body(response, ANSWER_BYTES).await;
        body.map_err(|error| match error {
            BodyError::Transport(error) => self.no_answer(error),
            BodyError::TooLong { most } => MetricsError::TooLarge { limit: most },
        })
    }

    fn no_answer(&self, error: reqwest::Error) -> MetricsError {
        if error.is_timeout() {
            MetricsError::Slow {
                seconds: self.deadline.as_secs(),
            }
        } else {
            MetricsError::Unreachable {
                why: self.redacted(&chain(&error.without_url())),
            }
        }
    }

    /// Returns a server's text on one line, without the token and other secrets.
    fn redacted(&self, text: &str) -> String {
        let text = match &self.token {
            Some(token) => text.replace(token.trim(), "***"),
            None => text.to_owned(),
        };
        let shown: String = without_secrets(&text).chars().take(SHOWN).collect();
        shown.escape_debug().to_string()
    }
}

/// Returns the expression that averages over a time. The line break ends a comment at the end of the original
/// expression.
fn averaged(expression: &str, over: Option<Duration>) -> String {
    let Some(over) = over else {
        return expression.to_owned();
    };
    let time = match over.subsec_millis() {
        0 => format!("{}s", over.as_secs()),
        _ => format!("{}ms", over.as_millis()),
    };
    format!("avg_over_time(({expression}\n)[{time}:])")
}
