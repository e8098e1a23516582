//! The code that `service` and `job` share: settings of the developer and of the platform, and pods.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    call::{ModuleCall, merge_texts},
    containers::{self, ContainerConfig},
    files::PodFiles,
};
use crate::{
    KusionError,
    kubernetes_object::{ObjectName, metadata},
};
use konverge_base::model::spec::Resource;

/// Settings of the developer for a workload.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WorkloadConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    /// The containers. Each is deserialized separately, so that an error can name it.
    containers: BTreeMap<String, Value>,
    pub(super) replicas: Option<i32>,
    /// The secrets, which `workload_secrets` generates: the module ignores them.
    #[serde(rename = "secrets")]
    _secrets: Value,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    topology_spread_constraints: BTreeMap<String, Map<String, Value>>,
    /// The kind of the workload of a `service`.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    /// Schedule of a `job`.
    pub(super) schedule: Option<String>,
}

/// Settings of the platform for a workload.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PlatformWorkload {
    replicas: Option<i32>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// The kind of the workload of a `service`.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}

/// The parts of a workload's objects.
pub(super) struct Workload {
    pub(super) labels: Map<String, Value>,
    pub(super) annotations: Map<String, Value>,
    pub(super) replicas: Option<i32>,
    pod_spec: Map<String, Value>,
    /// The ConfigMaps that the pods mount.
    pub(super) config_maps: Vec<Resource>,
    pub(super) notes: Vec<String>,
}

impl Workload {
    /// Merges the settings of the developer and of the platform: the developer's value wins.
    pub(super) fn new(
        call: &ModuleCall<'_>,
        config: &WorkloadConfig,
        platform: &PlatformWorkload,
    ) -> Result<Self, KusionError> {
        let (mut files, mut notes) = (PodFiles::default(), Vec::new());
        let mut containers = Vec::new();
        for (name, value) in &config.containers {
            let container: ContainerConfig =
                call.read(&format!("the container `{}`", name.escape_debug()), value)?;
            containers.push(containers::container(
                call, name, &container, &mut files, &mut notes,
            )?);
        }
        let mut pod_spec = Map::new();
        pod_spec.insert("containers".to_owned(), Value::Array(containers));
        if !config.topology_spread_constraints.is_empty() {
            let constraints = config.topology_spread_constraints.values();
            let constraints = constraints.map(|constraint| json!(constraint));
            let constraints =
                constraints.map(|constraint| with_entries(&constraint, &|key, _| key != "_type"));
            pod_spec.insert("topologySpreadConstraints".to_owned(), constraints.collect());
        }
        if !files.volumes.is_empty() {
            pod_spec.insert("volumes".to_owned(), Value::Array(files.volumes));
        }
        Ok(Self {
            labels: merge_texts(platform.labels.iter().chain(&config.labels), call.selector()),
            annotations: merge_texts(platform.annotations.iter().chain(&config.annotations), Map::new()),
            replicas: config.replicas.or(platform.replicas),
            pod_spec,
            config_maps: files.config_maps,
            notes,
        })
    }

    /// Returns the pod template.
    pub(super) fn pod_template(&self, restart_policy: Option<&str>) -> Value {
        let mut spec = self.pod_spec.clone();
        if let Some(policy) = restart_policy {
            spec.insert("restartPolicy".to_owned(), json!(policy));
        }
        json!({"metadata": metadata(None, &self.labels, &self.annotations), "spec": spec})
    }

    /// Returns the workload's object.
    pub(super) fn object(
        &self,
        call: &ModuleCall<'_>,
        api_version: &str,
        kind: &str,
        spec: Map<String, Value>,
    ) -> Result<Resource, KusionError> {
        let name = call.unique_name();
        let object = ObjectName::new(api_version, kind, Some(call.namespace), &name);
        let body = json!({"spec": spec, "status": {}});
        object.resource(call.app, &self.labels, &self.annotations, body)
    }
}

/// Copies a value with only these entries of its maps.
pub(super) fn with_entries(value: &Value, keeps: &dyn Fn(&str, &Value) -> bool) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| keeps(key, value))
            .map(|(key, value)| (key.clone(), with_entries(value, keeps)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| with_entries(item, keeps)).collect(),
        other => other.clone(),
    }
}
