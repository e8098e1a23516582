//! The API server's audit log: what was really asked of it, by whom.

use super::identities::User;
use serde::Deserialize;
use serde_json::json;

/// What is written down: each answered request without its bodies, but for the control plane's own.
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
    /// `get`, `list`, `create`, `patch`…
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// When it came in; later ones sort after earlier ones.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: String,
    /// Who asked.
    pub user: AuditUser,
    /// With what program.
    #[serde(default)]
    pub user_agent: String,
    /// For what; absent where the path names no resource.
    pub object_ref: Option<AuditObject>,
    /// How it was answered.
    pub response_status: Option<AuditStatus>,
}

impl AuditEvent {
    /// Whether it changed, or could have changed, what is stored.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.uri.contains("dryRun=All")
    }

    /// Whether it is about something in `namespace`.
    pub fn is_in(&self, namespace: &str) -> bool {
        self.object_ref
            .as_ref()
            .is_some_and(|object| object.namespace == namespace)
    }
}

/// The user of an [`AuditEvent`].
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// As in [`User::name`].
    pub username: String,
}

/// The object of an [`AuditEvent`]; what the request does not name is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditObject {
    /// Plural, lower case.
    pub resource: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The answer in an [`AuditEvent`].
#[derive(Clone, Debug, Deserialize)]
pub struct AuditStatus {
    /// HTTP status code.
    pub code: u16,
}
