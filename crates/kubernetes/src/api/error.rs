//! The errors of a cluster's API.

use std::time::Duration;

use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, SharedError, UserError, chain},
    interrupt::Stopped,
    model::ClusterName,
    retry::RetryDecision,
};

/// A request that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ApiError {
    /// The server responded with a `Status`.
    #[error("{}", .0.message)]
    Status(Box<ApiStatus>),
    /// No response, or a broken one.
    #[error("{}", &**.0)]
    Network(#[source] SharedError),
    /// No response in time.
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    /// A response that violates the protocol.
    #[error("unexpected answer")]
    Protocol(#[source] SharedError),
    /// Credentials could not be obtained (exec plugin, OIDC, token file).
    #[error("the credentials could not be obtained")]
    Credentials(#[source] SharedError),
    /// The request was abandoned, because the run was asked to stop.
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

/// The fields of `metav1.Status` that are used.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ApiStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The reason in one word, such as `NotFound`; empty if the response had none.
    pub reason: String,
    pub message: String,
    /// The causes, each with reason, message and field.
    pub causes: Vec<StatusCause>,
    /// Time after which the server asks to retry.
    pub retry_after: Option<Duration>,
}

/// One cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatusCause {
    /// The reason, such as `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    pub message: String,
    /// The field with dots, such as `spec.selector`; for conflicts `.spec.replicas`.
    pub field: String,
}

impl ApiStatus {
    /// Parses the body of an unsuccessful response.
    pub(crate) fn read(code: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let details = &value["details"];
        let causes = details["causes"].as_array().into_iter().flatten();
        let mut message = text(&value, "message");
        if message.is_empty() {
            let excerpt: String = String::from_utf8_lossy(body).chars().take(300).collect();
            message = format!("HTTP {code}: {}", excerpt.escape_debug());
        }
        Self {
            code,
            reason: text(&value, "reason"),
            message,
            causes: causes
                .map(|cause| StatusCause {
                    reason: text(cause, "reason"),
                    message: text(cause, "message"),
                    field: text(cause, "field"),
                })
                .collect(),
            retry_after: retry_after
                .or_else(|| details["retryAfterSeconds"].as_u64().map(Duration::from_secs)),
        }
    }
}

impl ApiError {
    /// Returns the status, if the server responded with one.
    pub(crate) fn status(&self) -> Option<&ApiStatus> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Returns true if the response has that HTTP status code.
    pub(crate) fn is_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    /// Returns the fields that other managers own, if the error is a conflict.
    pub(crate) fn conflicts(&self) -> Vec<&StatusCause> {
        let conflict = self.status().filter(|status| status.code == 409);
        let causes = conflict.into_iter().flat_map(|status| &status.causes);
        causes
            .filter(|cause| cause.reason == "FieldManagerConflict")
            .collect()
    }

    /// Decides whether to retry. Every request of Konverge is safe to repeat: reads, dry-runs, server-side
    /// applies, and deletions bound to a UID.
    pub(crate) fn verdict(&self) -> RetryDecision {
        match self {
            Self::Network(_) | Self::Deadline(_) => RetryDecision::Retry,
            Self::Protocol(_) | Self::Credentials(_) | Self::Stopped(_) => RetryDecision::GiveUp,
            Self::Status(status) => match status.code {
                409 if status.causes.is_empty() && !is_precondition(&status.message) => RetryDecision::Retry,
                500 if is_malformed(&status.message) || is_too_large(status) => RetryDecision::GiveUp,
                429 | 500 | 502 | 503 | 504 => status
                    .retry_after
                    .map_or(RetryDecision::Retry, RetryDecision::RetryAfter),
                _ => RetryDecision::GiveUp,
            },
        }
    }

    /// Returns true if there was no response at all.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Network(_) | Self::Deadline(_))
    }

    /// Converts the error to one for the user.
    pub(crate) fn failure(&self, cluster: &ClusterName, doing: &str) -> UserError {
        let kind = match self {
            Self::Stopped(_) => ErrorKind::Interrupted,
            _ => ErrorKind::Kubernetes,
        };
        let said = chain(self);
        let failure =
            UserError::from_error(kind, self.clone()).context(format_args!("cluster `{cluster}`: {doing}"));
        match self {
            // These texts come from rustls. `BadSignature` means an issuer with the same name but another
            // key. For an expired certificate, or one for another name, the message is enough.
            Self::Network(_) if said.contains("UnknownIssuer") || said.contains("BadSignature") => failure.hint(
                "the server's certificate is not trusted: compare `certificate-authority-data` of the kubeconfig with the \
                 cluster's",
            ),
            Self::Network(_) if said.contains("certificate") => failure,
            Self::Network(_) | Self::Deadline(_) => {
                failure.hint("check that the cluster is reachable from here: `kubectl version` sends a request to the same server")
            }
            Self::Credentials(_) => failure.hint("`kubectl auth whoami` shows your identity in the cluster"),
            Self::Protocol(_) | Self::Stopped(_) => failure,
            Self::Status(status) => match status.code {
                401 => failure
                    .hint("the credentials are not accepted: `kubectl auth whoami` shows your identity"),
                403 if is_about_rights(&status.message) => failure
                    .hint("the account lacks this right: `kubectl auth can-i --list` shows the rights that it has"),
                _ => failure,
            },
        }
    }
}

/// Returns true if a precondition failed because the object has another UID. A retry does not help.
fn is_precondition(message: &str) -> bool {
    message.contains("Precondition failed") || message.contains("uid mismatch")
}

/// Returns true if a 403 comes from the authorizer. A 403 of an admission plugin names no user.
fn is_about_rights(message: &str) -> bool {
    message.contains("User \"") && message.contains("\" cannot ")
}

/// Returns true if an object is larger than the server or its database accepts. A retry does not help.
pub(crate) fn is_too_large(status: &ApiStatus) -> bool {
    status.code == 413 || status.message.contains("request is too large")
}

/// Returns true for the server's own message about an object that does not match its schema.
pub(crate) fn is_malformed(message: &str) -> bool {
    let words = [
        "failed to create typed patch object",
        "strict decoding error",
        "not declared in schema",
    ];
    words.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_final_when_it_has_owners_and_passes_when_it_is_a_race() {
        let owned = br#"{"reason":"Conflict","message":"Apply failed","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\" using apps/v1","field":".spec.replicas"}]}}"#;
        let owned = ApiError::Status(Box::new(ApiStatus::read(409, owned, None)));
        assert_eq!(
            (owned.verdict(), owned.conflicts().len()),
            (RetryDecision::GiveUp, 1)
        );
        let race = br#"{"reason":"Conflict","message":"the object has been modified"}"#;
        assert_eq!(
            ApiError::Status(Box::new(ApiStatus::read(409, race, None))).verdict(),
            RetryDecision::Retry
        );
        let uid = br#"{"message":"Precondition failed: UID in precondition: a, UID in object meta: b"}"#;
        assert_eq!(
            ApiError::Status(Box::new(ApiStatus::read(409, uid, None))).verdict(),
            RetryDecision::GiveUp
        );
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_no_question_of_reach() {
        let hint = |reason: &str| {
            let cluster = "prod".parse().unwrap();
            let failure = ApiError::Network(reason.into()).failure(&cluster, "discovering API resources");
            failure.hints.join(" ")
        };
        for untrusted in ["UnknownIssuer", "BadSignature"] {
            let hint = hint(&format!("invalid peer certificate: {untrusted}"));
            assert!(hint.contains("`certificate-authority-data`"), "{untrusted}");
        }
        for other in [
            "invalid peer certificate: Expired",
            "invalid peer certificate: certificate expired: verification time 1 (UNIX), but certificate is not valid after 0",
            "invalid peer certificate: certificate not valid for name \"a\"; certificate is only valid for DnsName(\"b\")",
            "invalid peer certificate: NotValidForName",
        ] {
            assert_eq!(hint(other), "", "{other}");
        }
        assert!(hint("Connection refused").contains("reachable"));
    }

    #[test]
    fn only_the_authorizer_speaks_of_rights() {
        let hints = |message: &str| {
            let body = serde_json::json!({"code": 403, "message": message}).to_string();
            let error = ApiError::Status(Box::new(ApiStatus::read(403, body.as_bytes(), None)));
            error.failure(&"prod".parse().unwrap(), "x").hints.len()
        };
        for (message, expected) in [
            (
                r#"pods is forbidden: User "dev" cannot list resource "pods" in API group "" in the namespace "a""#,
                1,
            ),
            (r#"forbidden: User "system:anonymous" cannot get path "/apis""#, 1),
            (
                r#"pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
                0,
            ),
            (
                r#"pods "p" is forbidden: no PriorityClass with name high was found"#,
                0,
            ),
        ] {
            assert_eq!(hints(message), expected, "{message}");
        }
    }

    #[test]
    fn an_object_that_does_not_fit_is_not_sent_again() {
        let malformed = br#"{"message":"failed to create typed patch object (n/x; /v1, Kind=ConfigMap): .data.a: expected string, got 1","code":500}"#;
        let told = |body: &[u8]| ApiError::Status(Box::new(ApiStatus::read(500, body, None))).verdict();
        assert_eq!(told(malformed), RetryDecision::GiveUp);
        assert_eq!(
            told(br#"{"message":"etcdserver: request is too large"}"#),
            RetryDecision::GiveUp
        );
        assert_eq!(
            told(br#"{"message":"etcdserver: request timed out"}"#),
            RetryDecision::Retry
        );
    }

    #[test]
    fn an_answer_that_is_no_status_is_still_told() {
        let status = ApiStatus::read(502, b"<html>bad\x1b[0m gateway", None);
        assert_eq!(status.message, "HTTP 502: <html>bad\\u{1b}[0m gateway");
    }
}
