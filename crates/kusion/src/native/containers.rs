//! The containers of a workload.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    call::ModuleCall,
    env::Environment,
    files::{FileConfig, PodFiles},
    probes::{HandlerConfig, ProbeConfig},
};
use crate::KusionError;
use konverge_base::model::quantity::Quantity;

/// A container as the developer writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ContainerConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    image: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Map<String, Value>,
    #[serde(default)]
    working_dir: String,
    /// Resources such as `cpu`; the value is `LIMIT` or `REQUEST-LIMIT`.
    #[serde(default)]
    resources: BTreeMap<String, String>,
    /// Files to mount, by path.
    #[serde(default)]
    files: BTreeMap<String, FileConfig>,
    /// Secrets to mount as folders, by path.
    #[serde(default)]
    dirs: BTreeMap<String, String>,
    liveness_probe: Option<ProbeConfig>,
    readiness_probe: Option<ProbeConfig>,
    startup_probe: Option<ProbeConfig>,
    lifecycle: Option<LifecycleConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LifecycleConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    pre_stop: Option<HandlerConfig>,
    post_start: Option<HandlerConfig>,
}

/// Returns the container of a pod, and adds the volumes that it mounts to `files`.
pub(super) fn container(
    call: &ModuleCall<'_>,
    name: &str,
    config: &ContainerConfig,
    files: &mut PodFiles,
    notes: &mut Vec<String>,
) -> Result<Value, KusionError> {
    let refuse = |message: String| call.refuse(format!("the container `{}`: {message}", name.escape_debug()));
    let mut container = Map::new();
    let mut add = |key: &str, value: Value| container.insert(key.to_owned(), value);
    if !config.args.is_empty() {
        add("args", json!(config.args));
    }
    if !config.command.is_empty() {
        add("command", json!(config.command));
    }
    if !config.env.is_empty() {
        let env = Environment::read(&config.env, call.env_order).map_err(refuse)?;
        notes.extend(env.used_too_early(call.app, name));
        add("env", env.variables().map_err(refuse)?);
    }
    add("image", json!(config.image));
    if let Some(lifecycle) = &config.lifecycle {
        let mut hooks = Map::new();
        for (key, hook) in [
            ("postStart", &lifecycle.post_start),
            ("preStop", &lifecycle.pre_stop),
        ] {
            if let Some(hook) = hook {
                notes.extend(lost_of_url(call.app, name, key, &hook.without_effect()));
                hooks.insert(key.to_owned(), Value::Object(hook.action().map_err(refuse)?));
            }
        }
        add("lifecycle", Value::Object(hooks));
    }
    add("name", json!(name));
    let probes = [
        ("livenessProbe", &config.liveness_probe),
        ("readinessProbe", &config.readiness_probe),
        ("startupProbe", &config.startup_probe),
    ];
    for (key, probe) in probes {
        if let Some(probe) = probe {
            notes.extend(lost_of_url(call.app, name, key, &probe.without_effect()));
            add(key, probe.probe().map_err(refuse)?);
        }
    }
    add("resources", resources(&config.resources).map_err(refuse)?);
    let mounts = files.add(call, name, &config.files, &config.dirs, notes)?;
    if !mounts.is_empty() {
        add("volumeMounts", Value::Array(mounts));
    }
    if !config.working_dir.is_empty() {
        add("workingDir", json!(config.working_dir));
    }
    Ok(Value::Object(container))
}

/// Returns notes for the parts of a URL that a probe or a hook drops. The URL is not shown, because it may
/// contain a password.
fn lost_of_url(app: &str, container: &str, key: &str, parts: &[&str]) -> Vec<String> {
    let say = |part: &&str| {
        format!(
            "`{app}`: the {part} of the URL of `{key}` of the container `{container}` has no effect: Kubernetes gets host, port and path, and `headers`"
        )
    };
    parts.iter().map(say).collect()
}

/// Returns a quantity in the form that Kusion writes.
fn canonical(text: &str) -> Result<String, String> {
    let quantity = Quantity::parse(text);
    let quantity = quantity.ok_or_else(|| {
        format!(
            "resources: `{}` is not a quantity such as `500m` or `1Gi`",
            text.escape_debug()
        )
    })?;
    Ok(quantity.canonical())
}

/// Converts values such as `LIMIT` or `REQUEST-LIMIT` to Kubernetes' limits and requests.
fn resources(wanted: &BTreeMap<String, String>) -> Result<Value, String> {
    let (mut limits, mut requests) = (Map::new(), Map::new());
    for (name, text) in wanted {
        let parts: Vec<_> = text.split('-').collect();
        let limit = match parts[..] {
            [limit] => limit,
            [request, limit] => {
                requests.insert(name.clone(), json!(canonical(request)?));
                limit
            }
            _ => {
                return Err(format!(
                    "resources: `{}` is not LIMIT or REQUEST-LIMIT",
                    text.escape_debug()
                ));
            }
        };
        limits.insert(name.clone(), json!(canonical(limit)?));
    }
    let mut both = Map::new();
    for (key, values) in [("limits", limits), ("requests", requests)] {
        if !values.is_empty() {
            both.insert(key.to_owned(), Value::Object(values));
        }
    }
    Ok(Value::Object(both))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_resource_is_a_limit_or_a_request_and_a_limit() {
        let both = resources(&texts(&[("cpu", "250m-500m"), ("memory", "1Gi")])).unwrap();
        assert_eq!(
            both,
            json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}})
        );
        let written = resources(&texts(&[("cpu", "0.5-1000m"), ("memory", "1024Mi")])).unwrap();
        assert_eq!(
            written,
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}})
        );
        for wrong in ["1-2-3", "1-", "much", "1 Gi"] {
            assert!(resources(&texts(&[("cpu", wrong)])).is_err(), "{wrong}");
        }
        assert_eq!(resources(&texts(&[])).unwrap(), json!({}));
    }
}
