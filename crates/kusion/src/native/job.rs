//! The module `job`: a Job, or a CronJob if it has a schedule.

use serde_json::{Map, Value, json};

use super::{
    call::{ModuleCall, ModuleOutput},
    workload::{PlatformWorkload, Workload, WorkloadConfig},
};
use crate::{KusionError, kubernetes_object::metadata};

/// Generates the resources of a `job.Job`.
pub(crate) fn generate(call: &ModuleCall<'_>) -> Result<ModuleOutput, KusionError> {
    let config: WorkloadConfig = call.read("job", call.developer)?;
    let platform: PlatformWorkload =
        call.read("the workspace's settings", &Value::Object(call.platform.clone()))?;
    if config.kind.is_some() || platform.kind.is_some() {
        return Err(call.refuse("`type` belongs to a service"));
    }
    let mut workload = Workload::new(call, &config, &platform)?;
    if workload.replicas.is_some() {
        let note = format!("`{}`: `replicas` has no effect on a job", call.app);
        workload.notes.push(note);
    }
    let template = workload.pod_template(Some("Never"));
    let mut spec = Map::new();
    let kind = match config.schedule.as_deref().filter(|schedule| !schedule.is_empty()) {
        None => {
            spec.insert("template".to_owned(), template);
            "Job"
        }
        Some(schedule) => {
            let nothing = Map::new();
            let job = json!({"metadata": metadata(None, &nothing, &nothing), "spec": {"template": template}});
            spec.insert("jobTemplate".to_owned(), job);
            spec.insert("schedule".to_owned(), json!(schedule));
            "CronJob"
        }
    };
    Ok(ModuleOutput {
        workload: Some(workload.object(call, "batch/v1", kind, spec)?),
        resources: workload.config_maps,
        notes: workload.notes,
    })
}
