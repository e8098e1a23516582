//! HTTP requests for cloud logins. Errors never contain the request, because it may hold credentials.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::Value;
use url::form_urlencoded;

use super::CloudError;
use konverge_http::xml_text;
use konverge_secrets::without_secrets;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_server_come_from_known_fields_alone() {
        for (body, words) in [
            (
                r#"{"error": "invalid_grant", "error_description": "expired"}"#,
                ": expired",
            ),
            (
                r#"{"error": {"message": "denied", "request": "s3cret"}}"#,
                ": denied",
            ),
            (r#"{"error": "invalid_grant"}"#, ": invalid_grant"),
            (
                "<Error><Code>x</Code><Message>not trusted</Message></Error>",
                ": not trusted",
            ),
            (r#"{"request": "s3cret"}"#, ""),
            ("<html>s3cret</html>", ""),
            ("", ""),
            (
                r#"{"message": "two\nlines \u001b[31m"}"#,
                ": two\\nlines \\u{1b}[31m",
            ),
        ] {
            assert_eq!(server_words(body), words, "{body}");
        }
    }

    #[test]
    fn the_words_of_a_server_are_masked_before_they_are_cut() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let said = format!("{} {token}", "x".repeat(SHOWN - 10));
        let words = server_words(&serde_json::json!({ "message": said }).to_string());
        assert!(!words.contains("ghp_"), "{words}");
    }

    #[test]
    fn a_field_that_is_no_text_is_an_error_without_its_value() {
        let answer = serde_json::json!({"token": {"inner": "s3cret"}, "text": "t"});
        assert_eq!(field(&answer, "text", "a token"), Ok("t".to_owned()));
        for key in ["token", "missing"] {
            let error = field(&answer, key, "a token").unwrap_err();
            let said = konverge_base::error::chain(&error);
            assert_eq!(
                said,
                format!("a token could not be obtained: the answer has no `{key}`")
            );
        }
    }
}
