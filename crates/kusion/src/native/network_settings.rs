//! The settings of the module `network`, by the developer and by the platform.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of the developer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NetworkConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    #[serde(default)]
    pub ports: Vec<PortConfig>,
    pub ingress: Option<IngressConfig>,
    pub ingress_class: Option<IngressClassConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PortConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    pub port: u16,
    pub target_port: Option<u16>,
    pub protocol: Protocol,
    #[serde(default)]
    pub public: bool,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// Settings of the platform.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PlatformNetwork {
    /// The platform's [`PlatformPort`]. It is parsed only if a port is public, as the module does.
    pub port: Option<Value>,
}

/// Settings of the platform for public ports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformPort {
    /// The cloud provider; `None` if the workspace does not name one.
    #[serde(rename = "type")]
    pub cloud: Option<Cloud>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cloud {
    Alicloud,
    Aws,
}

/// The labels and annotations of a workload, as its developer wrote them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkloadMetadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// Settings of the developer for an Ingress. As JSON without nulls, they are its `spec`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IngressConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    #[serde(default, skip_serializing)]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing)]
    pub annotations: BTreeMap<String, String>,
    pub default_backend: Option<BackendConfig>,
    pub ingress_class_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfig>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<TlsConfig>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub service: Option<BackendService>,
    pub resource: Option<ReferencedObject>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendService {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    /// The name of the Service; empty for the Service of the port.
    #[serde(default)]
    pub name: String,
    pub port: BackendPort,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendPort {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub name: Option<String>,
    pub number: Option<u16>,
}

/// An object that a backend or a class names.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReferencedObject {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
    pub scope: Option<String>,
    pub namespace: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TlsConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    pub secret_name: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub host: Option<String>,
    pub http: Option<HttpConfig>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub paths: Vec<PathConfig>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PathConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    pub backend: BackendConfig,
    pub path: Option<String>,
    pub path_type: Option<String>,
}

/// Settings of the developer for an IngressClass. As JSON without nulls, they are its `spec`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IngressClassConfig {
    #[serde(rename = "_type", skip_serializing)]
    _schema: Option<String>,
    #[serde(default, skip_serializing)]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing)]
    pub annotations: BTreeMap<String, String>,
    pub controller: Option<String>,
    pub parameters: Option<ReferencedObject>,
}
