//! Classifies refusals of the server: replace the object, correct the Spec, or report missing permissions.

use super::{
    conflict_path::conflict_path,
    error::{ApiError, ApiStatus, is_malformed},
};
use konverge_base::error::{ErrorKind, UserError};

/// The cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    /// Immutable fields, as paths; the object must be recreated.
    Immutable(Vec<String>),
    /// The object is invalid.
    Invalid,
    /// A quota is exhausted.
    Quota,
    /// An admission webhook or policy denied the request.
    Denied,
    /// A webhook does not support dry-runs.
    NoDryRun,
    /// The namespace does not exist.
    NoNamespace,
    /// The namespace is being deleted.
    EndingNamespace,
    /// The server does not know the kind (any more).
    NoKind,
    /// The managed fields name a version that the server no longer has, which blocks every write.
    DeadVersion,
    Other,
}

/// The API server's messages for immutable fields of various kinds (from the causes of validation).
const IMMUTABLE: [&str; 7] = [
    "field is immutable",
    "may not change once set",
    "may not be changed",
    "is immutable after creation",
    "updates to statefulset spec for fields other than",
    "cannot change roleRef",
    "cannot be changed",
];

/// Finds the cause.
pub(crate) fn cause(error: &ApiError) -> RefusalCause {
    let Some(status) = error.status() else {
        return RefusalCause::Other;
    };
    let message = &status.message;
    match status.code {
        _ if message.contains("to an invalid group/version") => RefusalCause::DeadVersion,
        _ if message.contains("denied the request") || message.contains("denied request") => {
            RefusalCause::Denied
        }
        422 => {
            let immutable = immutable_paths(status);
            if immutable.is_empty() {
                RefusalCause::Invalid
            } else {
                RefusalCause::Immutable(immutable)
            }
        }
        400 if message.contains("does not support dry run") => RefusalCause::NoDryRun,
        403 if message.contains("exceeded quota") || message.contains("maximum ") => RefusalCause::Quota,
        403 if message.contains("because it is being terminated") => RefusalCause::EndingNamespace,
        404 if message.starts_with("namespaces \"") => RefusalCause::NoNamespace,
        404 if message.contains("could not find the requested resource") => RefusalCause::NoKind,
        400 => RefusalCause::Invalid,
        500 if is_malformed(message) => RefusalCause::Invalid,
        _ => RefusalCause::Other,
    }
}

/// The immutable fields among the causes; empty if there is any other cause, because then recreating the
/// object fails too.
fn immutable_paths(status: &ApiStatus) -> Vec<String> {
    let is_immutable = |text: &str| IMMUTABLE.iter().any(|words| text.contains(words));
    if status.causes.is_empty() {
        return if is_immutable(&status.message) {
            vec![String::new()]
        } else {
            Vec::new()
        };
    }
    if !status.causes.iter().all(|cause| is_immutable(&cause.message)) {
        return Vec::new();
    }
    let mut paths: Vec<_> = status
        .causes
        .iter()
        .map(|cause| conflict_path(&cause.field))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Returns true if a refusal concerns an object of that name: that it does not exist, or what it allows.
pub(crate) fn is_about(error: &ApiError, is_role: bool, name: &str) -> bool {
    let Some(status) = error.status().filter(|status| matches!(status.code, 403 | 404)) else {
        return false;
    };
    // The rules of the role decide whether a binding escalates the permissions of its author.
    let escalates = status.message.contains("attempting to grant RBAC permissions");
    (escalates && is_role) || holds_word(&status.message, name)
}

/// Returns true if a text contains a name that is not part of a longer one.
fn holds_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            // A name may end the sentence.
            let after = after
                .strip_prefix(['.', ':'])
                .filter(|rest| rest.is_empty() || rest.starts_with(' '))
                .unwrap_or(after);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
}

/// Returns true if the object no longer has the UID that was sent.
pub(crate) fn is_another_object(error: &ApiError) -> bool {
    error.status().is_some_and(|status| match status.code {
        409 => error.conflicts().is_empty(),
        422 => status.causes.iter().any(|cause| cause.field == "metadata.uid"),
        _ => false,
    })
}

/// Converts the refusal for a person.
pub(crate) fn refusal(
    error: &ApiError,
    cluster: &konverge_base::model::ClusterName,
    doing: &str,
) -> UserError {
    let cause = cause(error);
    let mut failure = error.failure(cluster, doing);
    if matches!(
        cause,
        RefusalCause::Quota | RefusalCause::Denied | RefusalCause::EndingNamespace
    ) {
        // The 403 is not about permissions.
        failure.hints.clear();
    }
    match cause {
        RefusalCause::Quota => {
            failure.kind = ErrorKind::Policy;
            failure.hint("ask for a larger quota, or ask for less: `kubectl describe resourcequota` shows what is used")
        }
        RefusalCause::Denied => {
            failure.kind = ErrorKind::Policy;
            failure.hint("a rule of the cluster forbids it; its message names the rule")
        }
        RefusalCause::NoNamespace => failure.hint("add the Namespace to the stack, or apply the stack that makes it first (`after` in `konverge.yaml`)"),
        RefusalCause::EndingNamespace => failure.hint("wait until the namespace is gone; `kubectl get namespace NAME --output yaml` says what blocks it"),
        RefusalCause::NoKind => failure.hint("add the CustomResourceDefinition to the stack, or apply the stack that makes it first"),
        RefusalCause::DeadVersion => failure
            .hint("an entry of its `metadata.managedFields` is of a version that is no longer served, which blocks every write to it")
            .hint("clear them, and run it again: `kubectl patch KIND NAME --type=merge -p '{\"metadata\":{\"managedFields\":[{}]}}'`"),
        RefusalCause::NoDryRun => failure.hint("the webhook's `sideEffects` must be `None` or `NoneOnDryRun`"),
        // Who knows what was sent says more.
        RefusalCause::Invalid => failure.hint("correct what the message names, then run the same command again"),
        RefusalCause::Immutable(_) | RefusalCause::Other => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn error(code: u16, body: Value) -> ApiError {
        ApiError::Status(Box::new(ApiStatus::read(code, body.to_string().as_bytes(), None)))
    }

    #[test]
    fn a_refusal_is_about_the_object_that_it_names() {
        let refused = |code, message: &str| error(code, json!({ "message": message }));
        let account = refused(
            403,
            r#"pods "p" is forbidden: error looking up service account ns/runner: serviceaccount "runner" not found"#,
        );
        assert!(is_about(&account, false, "runner"));
        assert!(!is_about(&account, false, "run") && !is_about(&account, false, ""));
        let class = refused(
            403,
            r#"pods "p" is forbidden: no PriorityClass with name high was found"#,
        );
        assert!(is_about(&class, false, "high"));
        let role = refused(404, r#"roles.rbac.authorization.k8s.io "reader" not found"#);
        assert!(is_about(&role, true, "reader") && !is_about(&role, true, "reader-2"));
        let grants = refused(
            403,
            r#"user "u" is attempting to grant RBAC permissions not currently held"#,
        );
        assert!(is_about(&grants, true, "reader") && !is_about(&grants, false, "c"));
        assert!(!is_about(&refused(422, "reader is wrong"), true, "reader"));
    }

    #[test]
    fn each_cause_is_told_apart() {
        let causes = |causes: Value| json!({"reason": "Invalid", "message": "is invalid", "details": {"causes": causes}});
        let immutable = json!({"field": "spec.selector", "message": "Invalid value: {}: field is immutable"});
        let bad = json!({"field": "spec.replicas", "message": "must be greater than or equal to 0"});
        assert_eq!(
            cause(&error(422, causes(json!([immutable])))),
            RefusalCause::Immutable(vec!["/spec/selector".to_owned()])
        );
        assert_eq!(
            cause(&error(422, causes(json!([immutable, bad])))),
            RefusalCause::Invalid
        );
        assert_eq!(
            cause(&error(
                403,
                json!({"message": "pods \"x\" is forbidden: exceeded quota: q"})
            )),
            RefusalCause::Quota
        );
        assert_eq!(
            cause(&error(
                400,
                json!({"message": "admission webhook \"a\" does not support dry run"})
            )),
            RefusalCause::NoDryRun
        );
        assert_eq!(
            cause(&error(
                403,
                json!({"message": "admission webhook \"a\" denied the request: no"})
            )),
            RefusalCause::Denied
        );
        let ending = json!({"message": "configmaps \"c\" is forbidden: unable to create new content in namespace n because it is being terminated"});
        assert_eq!(cause(&error(403, ending)), RefusalCause::EndingNamespace);
        let malformed = json!({"message": "failed to create typed patch object (n/x; /v1, Kind=ConfigMap): .data.a: expected string"});
        assert_eq!(cause(&error(500, malformed)), RefusalCause::Invalid);
        assert_eq!(
            cause(&error(404, json!({"message": "namespaces \"a\" not found"}))),
            RefusalCause::NoNamespace
        );
        assert_eq!(
            cause(&error(
                403,
                json!({"message": "is forbidden: User \"u\" cannot patch"})
            )),
            RefusalCause::Other
        );
    }
}
