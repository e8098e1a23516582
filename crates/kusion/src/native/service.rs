//! The module `service`: a Deployment or a CollaSet.

use serde_json::{Map, Value, json};

use super::{
    call::{ModuleCall, ModuleOutput},
    workload::{PlatformWorkload, Workload, WorkloadConfig},
};
use crate::KusionError;

/// Generates the resources of a `service.Service`.
pub(crate) fn generate(call: &ModuleCall<'_>) -> Result<ModuleOutput, KusionError> {
    let config: WorkloadConfig = call.read("service", call.developer)?;
    let platform: PlatformWorkload =
        call.read("the workspace's settings", &Value::Object(call.platform.clone()))?;
    if config.schedule.is_some() {
        return Err(call.refuse("`schedule` belongs to a job"));
    }
    let workload = Workload::new(call, &config, &platform)?;
    let kind = config
        .kind
        .as_deref()
        .or(platform.kind.as_deref())
        .unwrap_or("Deployment");
    let mut spec = Map::new();
    if let Some(replicas) = workload.replicas {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    spec.insert("selector".to_owned(), json!({"matchLabels": call.selector()}));
    // Empty values are written as Kusion writes them.
    let api_version = match kind {
        "Deployment" => {
            spec.insert("strategy".to_owned(), json!({}));
            "apps/v1"
        }
        "CollaSet" => {
            spec.insert("scaleStrategy".to_owned(), json!({}));
            spec.insert("updateStrategy".to_owned(), json!({}));
            "apps.kusionstack.io/v1alpha1"
        }
        other => {
            let message = format!("`type` is `{}`: Deployment or CollaSet", other.escape_debug());
            return Err(call.refuse(message));
        }
    };
    spec.insert("template".to_owned(), workload.pod_template(None));
    Ok(ModuleOutput {
        workload: Some(workload.object(call, api_version, kind, spec)?),
        resources: workload.config_maps,
        notes: workload.notes,
    })
}
