//! The API server's audit log: which requests it got, and from whom.

use super::identities::User;
use serde::Deserialize;
use serde_json::json;

/// Returns the audit policy: each answered request without its bodies, except for requests of the control plane.
pub fn policy() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "users": ["system:apiserver", User::ControlPlane.name()]},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata"},
        ],
    })
}

/// One answered request, from the API server's audit log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// The verb, such as `get`, `list`, `create` or `patch`.
    pub verb: String,
    /// The path and query of the request.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The time when the request was received. As text, later times sort after earlier ones.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: String,
    /// The user that sent the request.
    pub user: AuditUser,
    /// The `User-Agent` of the client.
    #[serde(default)]
    pub user_agent: String,
    /// The object of the request; absent if the path names no resource.
    pub object_ref: Option<AuditObject>,
    /// The response to the request.
    pub response_status: Option<AuditStatus>,
}

impl AuditEvent {
    /// Returns true if the request changed stored objects, or could have changed them.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.uri.contains("dryRun=All")
    }

    /// Returns true if the request is about an object in `namespace`.
    pub fn is_in(&self, namespace: &str) -> bool {
        self.object_ref
            .as_ref()
            .is_some_and(|object| object.namespace == namespace)
    }
}

/// The user of an [`AuditEvent`].
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// The name, as in [`User::name`].
    pub username: String,
}

/// The object of an [`AuditEvent`]. Parts that the request does not name are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditObject {
    /// The resource, plural and in lower case.
    pub resource: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

/// The response in an [`AuditEvent`].
#[derive(Clone, Debug, Deserialize)]
pub struct AuditStatus {
    /// HTTP status code.
    pub code: u16,
}
