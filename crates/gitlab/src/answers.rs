//! Interprets GitLab's error responses: missing permissions, texts that are too long, server errors.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use konverge_base::retry;
use konverge_forge::{ForgeError, ForgeKind};
use konverge_rest::{Answer, TokenPermission, UNSAID};
use serde_json::Value;

/// The maximum wait that is accepted from a response.
const LONGEST: Duration = Duration::from_secs(3600);

/// Returns the error of a response whose status is no success. `need` is the token's scope and role for the request.
pub(super) fn error_of(operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
    let forge = ForgeKind::Gitlab;
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let message = message(&json);
    match answer.status.as_u16() {
        429 => ForgeError::Limited {
            forge,
            operation: operation.to_owned(),
            wait: wait(&answer.headers, Timestamp::now()),
        },
        status @ (400 | 413 | 422) if status == 413 || message.contains("is too long") => {
            ForgeError::TooLong {
                forge,
                operation: operation.to_owned(),
            }
        }
        status => {
            let scope = scope(&json).filter(|_| status == 403);
            answer.error(forge, operation, scope.as_deref().unwrap_or(need.0), &message)
        }
    }
}

/// Returns the message in an error response: a text, or as JSON a list of texts or texts by field.
fn message(json: &Value) -> String {
    match &json["message"] {
        Value::Null => json["error"].as_str().unwrap_or_default().to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the scope that the token lacks, from `{"error": "insufficient_scope", "scope": "api"}`.
fn scope(json: &Value) -> Option<String> {
    if json["error"] != "insufficient_scope" {
        return None;
    }
    let scope = json["scope"].as_str()?;
    let is_scope = |c: char| c.is_ascii_lowercase() || c == '_' || c == ' ';
    (!scope.is_empty() && scope.chars().all(is_scope)).then(|| format!("the scope `{scope}`"))
}

/// Returns the time that GitLab asks to wait: `Retry-After`, or the time in `RateLimit-Reset`.
fn wait(headers: &HeaderMap, now: Timestamp) -> Duration {
    let until = || {
        let reset = headers.get("ratelimit-reset")?.to_str().ok()?.parse().ok()?;
        let reset = Timestamp::from_second(reset).ok()?;
        Duration::try_from(reset.duration_since(now)).ok()
    };
    let wait = retry::retry_after(headers).or_else(until);
    wait.unwrap_or(UNSAID).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};

    use super::*;

    fn error(status: u16, body: &str) -> ForgeError {
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.to_owned(),
        };
        error_of("POST /x", &answer, TokenPermission("the scope `api`"))
    }

    #[test]
    fn the_missing_scope_is_named() {
        let said = r#"{"error":"insufficient_scope","error_description":"The request requires higher privileges.","scope":"api read_api"}"#;
        let permission = |said| match error(403, said) {
            ForgeError::Forbidden { permission, .. } => permission,
            other => panic!("{other:?}"),
        };
        assert_eq!(permission(said), "the scope `api read_api`");
        // Text that others wrote must not get into the hint.
        let hostile = r#"{"error":"insufficient_scope","scope":"`rm -rf`"}"#;
        assert_eq!(permission(hostile), "the scope `api`");
        assert_eq!(permission(r#"{"message":"403 Forbidden"}"#), "the scope `api`");
    }

    #[test]
    fn errors_are_told_apart_by_status_and_by_what_they_say() {
        let long = r#"{"message":{"note":["is too long (maximum is 1000000 characters)"]}}"#;
        assert!(matches!(error(400, long), ForgeError::TooLong { .. }));
        let other = r#"{"message":{"title":["can't be blank"]}}"#;
        let refused = error(400, other).to_string();
        assert!(refused.contains("can't be blank"), "{refused}");
        assert!(matches!(
            error(401, r#"{"message":"401 Unauthorized"}"#),
            ForgeError::Token { .. }
        ));
        assert!(matches!(
            error(502, "<html>"),
            ForgeError::Server { status: 502, .. }
        ));
    }

    #[test]
    fn it_waits_as_long_as_the_limit_says() {
        let now = Timestamp::from_second(1_000).unwrap();
        let wait = |name: &'static str, value: &'static str| {
            let name = http::HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            super::wait(&headers, now).as_secs()
        };
        assert_eq!(wait("retry-after", "30"), 30);
        assert_eq!(wait("ratelimit-reset", "1045"), 45);
        // A time in the past, a time far in the future, and no time.
        for (value, seconds) in [("900", 60), ("9999999", 3600), ("soon", 60)] {
            assert_eq!(wait("ratelimit-reset", value), seconds, "{value}");
        }
    }
}
