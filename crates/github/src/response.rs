//! Interprets GitHub's error responses: rate limits, missing permissions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};
use serde_json::Value;

use konverge_base::retry;
use konverge_forge::{ForgeError, ForgeKind};
use konverge_rest::{Answer, TokenPermission, UNSAID};

/// Returns the error of a response whose status is no success. `need` is the permission for the request.
pub(super) fn error_of(operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
    let (forge, headers) = (ForgeKind::Github, &answer.headers);
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let message = json["message"].as_str().unwrap_or_default();
    // GitHub uses 403 for three different errors, so rate limits and locked conversations are recognized before a
    // missing permission.
    match answer.status.as_u16() {
        status @ (403 | 429) if status == 429 || is_limit(headers, message) => ForgeError::Limited {
            forge,
            operation: operation.to_owned(),
            wait: wait(headers, SystemTime::now()),
        },
        403 if says_locked(message) => ForgeError::Locked {
            forge,
            operation: operation.to_owned(),
        },
        422 if says_too_long(&json, message) => ForgeError::TooLong {
            forge,
            operation: operation.to_owned(),
        },
        _ => {
            let permission = permission(headers, need.0);
            answer.error(forge, operation, &permission, &error_text(&json, message))
        }
    }
}

fn is_limit(headers: &HeaderMap, message: &str) -> bool {
    headers.contains_key(header::RETRY_AFTER)
        || number(headers, "x-ratelimit-remaining") == Some(0)
        || message.to_ascii_lowercase().contains("rate limit")
}

/// Returns the time to wait: `retry-after`, or else the time until the limit is reset, or else a minute.
fn wait(headers: &HeaderMap, now: SystemTime) -> Duration {
    if let Some(wait) = retry::retry_after(headers) {
        return wait;
    }
    if number(headers, "x-ratelimit-remaining") == Some(0)
        && let Some(reset) = number(headers, "x-ratelimit-reset")
    {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        return Duration::from_secs(reset.saturating_sub(now) + 1);
    }
    UNSAID
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the permission that GitHub names in a header (`issues=write; pull_requests=write`), or else the
/// documented one, as a line for `permissions:`.
fn permission(headers: &HeaderMap, need: &str) -> String {
    let named = headers
        .get("x-accepted-github-permissions")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let options: Vec<_> = value
                .split(';')
                .map(|o| o.trim().replace('_', "-").replace('=', ": "))
                .collect();
            // Several names are alternatives. If the documented permission is among them it is preferred, because
            // after this refused read a write follows, which needs more.
            let of = |text: &str| text.split(':').next().map(str::to_owned);
            if options.iter().any(|option| of(option) == of(need)) {
                Some(need.to_owned())
            } else {
                options.first().cloned()
            }
        })
        .filter(|named| {
            named
                .chars()
                .all(|c| c.is_ascii_lowercase() || "-: ,".contains(c))
                && named.contains(": ")
        });
    named.unwrap_or_else(|| need.to_owned())
}

/// Returns true for a message such as `Unable to create comment because issue is locked.`
fn says_locked(message: &str) -> bool {
    message.to_ascii_lowercase().contains("is locked")
}

fn says_too_long(json: &Value, message: &str) -> bool {
    let errors = json["errors"].to_string().to_ascii_lowercase();
    let text = format!("{} {errors}", message.to_ascii_lowercase());
    text.contains("too long") || text.contains("too_long") || text.contains("maximum is")
}

fn error_text(json: &Value, message: &str) -> String {
    let mut text = message.to_owned();
    for error in json["errors"].as_array().into_iter().flatten() {
        let detail = error["message"]
            .as_str()
            .or_else(|| error.as_str())
            .map(str::to_owned)
            .unwrap_or_else(|| {
                format!(
                    "{} {}",
                    error["field"].as_str().unwrap_or_default(),
                    error["code"].as_str().unwrap_or_default()
                )
            });
        text.push_str("; ");
        text.push_str(detail.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
            .collect()
    }

    fn error(status: u16, pairs: &[(&'static str, &str)], body: &str) -> ForgeError {
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers(pairs),
            body: body.to_owned(),
        };
        error_of("GET /x", &answer, TokenPermission("pull-requests: write"))
    }

    #[test]
    fn a_limit_is_not_a_missing_permission() {
        assert!(
            matches!(error(403, &[("retry-after", "7")], ""), ForgeError::Limited { wait, .. } if wait.as_secs() == 7)
        );
        assert!(matches!(
            error(403, &[], r#"{"message":"You have exceeded a secondary rate limit."}"#),
            ForgeError::Limited { wait, .. } if wait == UNSAID
        ));
        assert!(matches!(
            error(403, &[], r#"{"message":"Resource not accessible by integration"}"#),
            ForgeError::Forbidden { permission, .. } if permission == "pull-requests: write"
        ));
        assert!(matches!(
            error(403, &[("x-accepted-github-permissions", "issues=write")], "{}"),
            ForgeError::Forbidden { permission, .. } if permission == "issues: write"
        ));
        assert!(matches!(
            error(403, &[("x-accepted-github-permissions", "issues=read; pull_requests=read")], "{}"),
            ForgeError::Forbidden { permission, .. } if permission == "pull-requests: write"
        ));
    }

    #[test]
    fn a_locked_conversation_is_not_a_missing_permission() {
        let body = r#"{"message":"Unable to create comment because issue is locked.","status":"403"}"#;
        let locked = error(403, &[], body);
        assert!(matches!(locked, ForgeError::Locked { .. }), "{locked}");
        let failure = konverge_base::error::UserError::from(locked);
        assert!(
            failure.hints.iter().all(|hint| !hint.contains("permissions")),
            "{failure:?}"
        );
    }

    #[test]
    fn the_reset_decides_when_the_primary_limit_is_used_up() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let headers = headers(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")]);
        assert_eq!(wait(&headers, now), Duration::from_secs(31));
    }

    #[test]
    fn too_long_is_told_from_other_refusals() {
        let body = r#"{"message":"Validation Failed","errors":[{"resource":"IssueComment","code":"unprocessable","field":"data","message":"Body is too long (maximum is 65536 characters)"}]}"#;
        assert!(matches!(error(422, &[], body), ForgeError::TooLong { .. }));
        assert!(matches!(
            error(422, &[], r#"{"message":"Validation Failed"}"#),
            ForgeError::Refused { .. }
        ));
    }
}
