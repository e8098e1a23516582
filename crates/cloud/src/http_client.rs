//! HTTP requests for cloud logins. Errors never contain the request, because it may hold credentials.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::Value;
use url::form_urlencoded;

use super::CloudError;
use konverge_base::secrets::without_secrets;
use konverge_http::xml_text;

/// The maximum duration of a request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// The maximum number of characters of a server's error text in a message.
const SHOWN: usize = 300;

/// Sends the requests of a login. It follows no redirect, which could send a token elsewhere.
#[derive(Debug, Clone)]
pub(super) struct LoginClient(Client);

impl LoginClient {
    pub(crate) fn new() -> Result<Self, CloudError> {
        let client = konverge_http::client().timeout(REQUEST_DEADLINE).build();
        client
            .map(Self)
            .map_err(|error| CloudError::refused("an HTTP client", error))
    }

    pub(crate) fn get(&self, url: impl reqwest::IntoUrl) -> RequestBuilder {
        self.0.get(url)
    }

    pub(crate) fn post(&self, url: impl reqwest::IntoUrl) -> RequestBuilder {
        self.0.post(url)
    }

    /// Builds a POST request with a form.
    pub(crate) fn post_form(&self, url: impl reqwest::IntoUrl, fields: &[(&str, &str)]) -> RequestBuilder {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        self.0
            .post(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body)
    }
}

/// Sends a request and returns the body of a successful response. `what` names the requested value in errors.
pub(super) async fn text(request: RequestBuilder, what: &str) -> Result<String, CloudError> {
    let no_answer = |error: reqwest::Error| CloudError::Unavailable {
        what: what.to_owned(),
        why: error.without_url().into(),
    };
    let answer = konverge_http::send(request).await.map_err(no_answer)?;
    let status = answer.status();
    let body = answer.text().await.map_err(no_answer)?;
    if status.is_success() {
        return Ok(body);
    }
    let why = format!("{status}{}", server_words(&body));
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        Err(CloudError::Unavailable {
            what: what.to_owned(),
            why: why.into(),
        })
    } else {
        Err(CloudError::refused(what, why))
    }
}

/// Returns the error text of a response. Only known fields are read, because others may repeat the request.
fn server_words(body: &str) -> String {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let reasons = [
        &said["error_description"],
        &said["error"]["message"],
        &said["message"],
        &said["error"],
    ];
    let words = reasons.iter().find_map(|reason| reason.as_str());
    let of_xml = words.is_none().then(|| xml_text(body, "Message")).flatten();
    let words = words.or(of_xml.as_deref());
    match words {
        None => String::new(),
        Some(words) => {
            let words: String = without_secrets(words).chars().take(SHOWN).collect();
            format!(": {}", words.escape_debug())
        }
    }
}

/// Sends a request and returns the JSON of a successful response.
pub(super) async fn json(request: RequestBuilder, what: &str) -> Result<Value, CloudError> {
    let body = text(request, what).await?;
    serde_json::from_str(&body).map_err(|_| CloudError::refused(what, "the answer is not JSON"))
}

/// Returns a text field of a JSON response.
pub(super) fn field(answer: &Value, key: &str, what: &str) -> Result<String, CloudError> {
    let found = answer[key].as_str().map(str::to_owned);
    found.ok_or_else(|| CloudError::refused(what, format!("the answer has no `{key}`")))
}
