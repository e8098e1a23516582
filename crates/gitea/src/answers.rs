//! Interprets Gitea's error responses: missing permissions, locked conversations, server errors.

use http::StatusCode;
use konverge_forge::{ForgeError, ForgeKind};
use konverge_rest::{Answer, TokenPermission};
use serde_json::Value;

/// Returns the error of a response whose status is no success. Gitea itself has no rate limit, but a proxy may have
/// one. `need` is the token's scope for the request.
pub(super) fn error_of(operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let message = json["message"].as_str().unwrap_or_default();
    let is_forbidden = answer.status == StatusCode::FORBIDDEN;
    if is_forbidden && message.contains("locked") {
        return ForgeError::Locked {
            forge: ForgeKind::Gitea,
            operation: operation.to_owned(),
        };
    }
    let scope = scope(message).filter(|_| is_forbidden);
    let permission = scope.as_deref().unwrap_or(need.0);
    answer.error(ForgeKind::Gitea, operation, permission, message)
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
        error_of("POST /x", &answer, TokenPermission("write:issue"))
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
