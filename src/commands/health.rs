//! The `health` use case: evaluates the health of manifests offline.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use konverge_base::{error::UserError, model::GroupKind};
use konverge_config::Config;
pub use konverge_kubernetes::health::Health;
use konverge_kubernetes::health::{self, HealthRules, HealthVerdict, Manifest, Related, documents};
use konverge_run::{RunContext, health_evaluator};

/// A row of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The id of the object, as in a Spec.
    pub id: String,
    /// The health of the object.
    pub health: Health,
    /// The reason. It is text from the object and must be escaped before it is printed to a terminal.
    pub message: String,
}

/// Evaluates every object of the manifests (name, text) in order. Objects of the same input count as related:
/// pods for their Deployment, a CRD for its custom resources.
///
/// # Errors
/// A manifest or the folder of rules cannot be read.
pub async fn health(
    run: &RunContext,
    manifests: &[(String, String)],
    rules: Option<&Path>,
) -> Result<Vec<Row>, UserError> {
    let rules = rules.map_or_else(|| Ok(HealthRules::default()), HealthRules::load)?;
    let rules = rules.with_evaluator(health_evaluator::new(run, &Config::default()));
    let mut objects = Vec::new();
    for (name, text) in manifests {
        objects.extend(documents(name, text)?);
    }
    let related = related_objects(&objects);
    let mut rows = Vec::with_capacity(objects.len());
    for Manifest { id, object } in &objects {
        let HealthVerdict { health, message, .. } = health::assess(object, &related, &rules).await;
        rows.push(Row {
            id: id.clone(),
            health,
            message,
        });
    }
    Ok(rows)
}

fn related_objects(objects: &[Manifest]) -> Related {
    let of_kind = |kind: GroupKind<'_>| -> Vec<Value> {
        let matching = objects.iter().map(|document| &document.object);
        matching
            .filter(|object| GroupKind::from_object(object) == kind)
            .cloned()
            .collect()
    };
    let mut events = of_kind(GroupKind::new("", "Event"));
    events.extend(of_kind(GroupKind::new("events.k8s.io", "Event")));
    let definitions = of_kind(GroupKind::CUSTOM_RESOURCE_DEFINITION);
    Related {
        pods: of_kind(GroupKind::POD),
        replica_sets: of_kind(GroupKind::REPLICA_SET),
        storage_classes: of_kind(GroupKind::STORAGE_CLASS),
        rollout_runs: Some(of_kind(GroupKind::new("rollout.kusionstack.io", "RolloutRun"))),
        reporting: definitions.iter().filter_map(reports_status).collect(),
        events,
        now: None,
    }
}

/// Returns the group and kind that a CRD defines, if one of its versions has a `status`.
fn reports_status(definition: &Value) -> Option<(String, String)> {
    let versions = definition["spec"]["versions"].as_array()?;
    let status = versions
        .iter()
        .any(|version| !version["subresources"]["status"].is_null());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = text(&definition["spec"]["names"]["kind"])?;
    status.then_some((text(&definition["spec"]["group"])?, kind))
}
