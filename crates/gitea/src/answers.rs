//! Interprets Gitea's error responses: missing permissions, locked conversations, server errors.

use http::StatusCode;
use konverge_base::retry;
use konverge_forge::{ForgeError, ForgeKind};
use konverge_rest::{Answer, TokenPermission};
use serde_json::Value;
use std::time::Duration;

/// The wait if a proxy limits requests and gives no time. Gitea itself has no rate limit.
const UNSAID: Duration = Duration::from_secs(60);

/// Returns the error of a response, if its status is one. `need` is the token's scope for the request.
pub(super) fn error_of(operation: &str, answer: &Answer, need: TokenPermission) -> Option<ForgeError> {
    let status = answer.status;
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return None;
    }
    let (forge, operation) = (ForgeKind::Gitea, operation.to_owned());
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let message = json["message"].as_str().unwrap_or_default();
    Some(match status.as_u16() {
        429 => ForgeError::Limited {
            forge,
            operation,
            wait: retry::retry_after(&answer.headers).unwrap_or(UNSAID),
        },
        401 => ForgeError::Token { forge, operation },
        403 if message.contains("locked") => ForgeError::Locked { forge, operation },
        403 => ForgeError::Forbidden {
            forge,
            operation,
            permission: scope(message).unwrap_or_else(|| need.0.to_owned()),
        },
        404 => ForgeError::NotFound {
            forge,
            operation,
            permission: need.0.to_owned(),
        },
        500..=599 => ForgeError::Server {
            forge,
            operation,
            status: status.as_u16(),
        },
        other => ForgeError::Refused {
            forge,
            operation,
            status: other,
            message: message.chars().take(500).collect(),
        },
    })
}

/// Returns the scope that the token lacks, from a message `… required=[write:issue], token scope=read:issue`.
fn scope(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("required=[")?;
    let (required, _) = rest.split_once(']')?;
    let is_scope = |c: char| c.is_ascii_lowercase() || ":- ".contains(c);
    (!required.is_empty() && required.chars().all(is_scope)).then(|| required.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, body: &str) -> ForgeError {
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: http::HeaderMap::new(),
            body: body.to_owned(),
        };
        error_of("POST /x", &answer, TokenPermission("write:issue")).unwrap()
    }

    #[test]
    fn the_missing_scope_is_named() {
        let said = r#"{"message":"token does not have at least one of required scope(s), required=[write:repository], token scope=read:repository"}"#;
        assert!(matches!(
            error(403, said),
            ForgeError::Forbidden { permission, .. } if permission == "write:repository"
        ));
        // Text that others wrote must not get into the hint.
        let hostile = r#"{"message":"required=[`rm -rf`], token"}"#;
        assert!(matches!(
            error(403, hostile),
            ForgeError::Forbidden { permission, .. } if permission == "write:issue"
        ));
        let locked = r#"{"message":"You cannot comment on a locked conversation."}"#;
        assert!(matches!(error(403, locked), ForgeError::Locked { .. }));
        assert!(matches!(
            error(502, "<html>"),
            ForgeError::Server { status: 502, .. }
        ));
    }
}
