//! Classifies refusals of the server, to decide whether to replace the object, or which hint to show.

use super::{
    conflict_path::conflict_path,
    error::{ApiError, ApiStatus, is_malformed, is_too_large},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::FieldPath,
};

/// The cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    /// Immutable fields, as paths; the object must be recreated.
    Immutable(Vec<FieldPath>),
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
    /// The server does not serve the kind, or no longer.
    NoKind,
    /// The managed fields name a version that the server no longer has, which blocks every write.
    DeadVersion,
    Other,
}

/// The API server's messages for immutable fields of various kinds, from its validation code.
const IMMUTABLE: [&str; 7] = [
    "field is immutable",
    "may not change once set",
    "may not be changed",
    "is immutable after creation",
    "updates to statefulset spec for fields other than",
    "cannot change roleRef",
    "cannot be changed",
];

/// Returns the cause of an error.
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

/// Returns the immutable fields among the causes. Empty if there is any other cause, because then recreating
/// the object would fail too.
fn immutable_paths(status: &ApiStatus) -> Vec<FieldPath> {
    let is_immutable = |text: &str| IMMUTABLE.iter().any(|words| text.contains(words));
    if status.causes.is_empty() {
        return if is_immutable(&status.message) {
            vec![FieldPath::root()]
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

/// Returns true if a refusal is about the object of that name: it is missing, or it is a role with
/// permissions that the account may not grant.
pub(crate) fn is_about(error: &ApiError, is_role: bool, name: &str) -> bool {
    let Some(status) = error.status().filter(|status| matches!(status.code, 403 | 404)) else {
        return false;
    };
    // The rules of a role decide if a binding to it escalates the author's permissions, so the role may be
    // the cause.
    let escalates = status.message.contains("attempting to grant RBAC permissions");
    (escalates && is_role) || holds_word(&status.message, name)
}

/// Returns true if a text contains a name that is not part of a longer one.
fn holds_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            // A name may be at the end of a sentence.
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

/// Converts a refusal to an error for the user.
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
        // This 403 comes from an admission plugin, so hints about permissions would mislead.
        failure.hints.clear();
    }
    match cause {
        RefusalCause::Quota => {
            failure.kind = ErrorKind::Policy;
            failure.hint("request a larger quota, or use less of it: `kubectl describe resourcequota` shows what is used")
        }
        RefusalCause::Denied => {
            failure.kind = ErrorKind::Policy;
            failure.hint("change the object, or the rule of the cluster that forbids it: the message names the rule")
        }
        RefusalCause::NoNamespace => failure.hint("add the Namespace to this stack, or first apply the stack that creates it (`after` in `konverge.yaml`)"),
        RefusalCause::EndingNamespace => failure.hint("wait until the namespace is gone; `kubectl get namespace NAME --output yaml` says what blocks it"),
        RefusalCause::NoKind => failure.hint("add the CustomResourceDefinition to this stack, or first apply the stack that creates it"),
        RefusalCause::DeadVersion => failure
            .hint("an entry in `metadata.managedFields` of the object has an API version that is no longer served, and blocks every write to the object")
            .hint("clear the managed fields, and run the command again: `kubectl patch KIND NAME --type=merge -p '{\"metadata\":{\"managedFields\":[{}]}}'`"),
        RefusalCause::NoDryRun => failure.hint("set `sideEffects` of the webhook to `None` or `NoneOnDryRun`"),
        // The caller knows the request, and adds a more specific hint if possible.
        RefusalCause::Invalid => failure.hint("correct what the message names, then run the same command again"),
        RefusalCause::Immutable(_) => failure,
        RefusalCause::Other => match error.status().and_then(other_hint) {
            Some(hint) => failure.hint(hint),
            None => failure,
        },
    }
}

/// Returns the hint for a refusal whose cause is only in the server's message: an admission plugin that
/// returns 403 like the authorizer, an object that is too large, a webhook that is down, or the API server of
/// an extension.
fn other_hint(status: &ApiStatus) -> Option<&'static str> {
    let message = &status.message;
    let says = |words: &str| message.contains(words);
    let hint = match status.code {
        _ if is_too_large(status) => {
            "the object is too large: split it, or keep the data outside of the cluster (most objects may have about 1.5 MB)"
        }
        500 if says("failed calling webhook") => {
            "the webhook does not answer, which blocks the write: look at the Service and the pods that serve it, and at its `failurePolicy`"
        }
        500 if says("conversion webhook") => {
            "the webhook that converts the versions of this kind does not answer: look at `spec.conversion` of its CustomResourceDefinition, and at the pods that serve it"
        }
        403 if says("violates PodSecurity") => {
            "the namespace's label `pod-security.kubernetes.io/enforce` forbids these pods: set what the message names in `securityContext`, or ask who owns the namespace for another level"
        }
        403 if says("failed quota") => {
            "a ResourceQuota of the namespace counts what the pods do not state: set what the message names (`kubectl describe resourcequota`)"
        }
        403 if says("minimum ") || says("limit to request ratio") => {
            "a LimitRange of the namespace has these bounds: `kubectl describe limitrange` shows them"
        }
        403 if says("attempting to grant RBAC permissions") => {
            "nobody may give rights that they do not have: the account needs these rights itself, or the verb `escalate` on roles and `bind` on bindings"
        }
        403 if says("error looking up service account") => {
            "add the ServiceAccount to this stack, or first apply the stack that creates it (`after` in `konverge.yaml`)"
        }
        403 if says("no PriorityClass with name") => {
            "add the PriorityClass to this stack, or first apply the stack that creates it (`after` in `konverge.yaml`)"
        }
        405 => "the server only serves reads of this kind: it is not applied like an object",
        415 => {
            "the API server of this kind has no server-side apply: it is an extension that is older than Kubernetes 1.22"
        }
        _ => return None,
    };
    Some(hint)
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
    fn what_only_the_words_tell_has_a_hint_of_its_own() {
        for (code, message, expected) in [
            (413, "Request entity too large: limit is 3145728", "too large"),
            (500, "etcdserver: request is too large", "too large"),
            (
                500,
                r#"Internal error occurred: failed calling webhook "v.example.com": Post "https://x": no endpoints available"#,
                "`failurePolicy`",
            ),
            (
                500,
                "conversion webhook for example.com/v1, Kind=Widget failed: Post x: connection refused",
                "`spec.conversion`",
            ),
            (
                403,
                r#"pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
                "pod-security.kubernetes.io/enforce",
            ),
            (
                403,
                r#"pods "p" is forbidden: failed quota: compute: must specify limits.cpu"#,
                "ResourceQuota",
            ),
            (
                403,
                r#"pods "p" is forbidden: minimum cpu usage per Container is 100m, but request is 1m"#,
                "LimitRange",
            ),
            (
                403,
                r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "u" (groups=[]) is attempting to grant RBAC permissions not currently held:"#,
                "`escalate`",
            ),
            (
                403,
                r#"pods "p" is forbidden: error looking up service account a/b: serviceaccount "b" not found"#,
                "ServiceAccount",
            ),
            (
                403,
                r#"pods "p" is forbidden: no PriorityClass with name high was found"#,
                "PriorityClass",
            ),
            (
                405,
                "the server does not allow this method on the requested resource",
                "only serves reads",
            ),
            (
                415,
                "the body of the request was in an unknown format",
                "no server-side apply",
            ),
        ] {
            let error = error(code, json!({ "message": message, "code": code }));
            let hints = refusal(&error, &"prod".parse().unwrap(), "x").hints;
            assert_eq!(hints.len(), 1, "{message}: {hints:?}");
            assert!(hints[0].contains(expected), "{message}: {hints:?}");
        }
    }

    #[test]
    fn each_cause_is_told_apart() {
        let causes = |causes: Value| json!({"reason": "Invalid", "message": "is invalid", "details": {"causes": causes}});
        let immutable = json!({"field": "spec.selector", "message": "Invalid value: {}: field is immutable"});
        let bad = json!({"field": "spec.replicas", "message": "must be greater than or equal to 0"});
        assert_eq!(
            cause(&error(422, causes(json!([immutable])))),
            RefusalCause::Immutable(vec!["/spec/selector".into()])
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
