//! Reads related objects for a health evaluation, only while an object is not ready: its pods, its replica
//! sets, their events, and after a failure the last lines of a log.

use std::time::Duration;

use http_body_util::BodyExt as _;
use konverge_base::{error::chain, model::GroupKind};
use serde_json::Value;

use super::super::{
    api::{
        client::{ApiRequest, escape},
        cluster::Cluster,
        discovery::ResourceType,
    },
    health::{FailingPod, Log, Related, culprit},
};

/// The rollouts of KusionStack.
const KUSION_ROLLOUT: GroupKind<'static> = GroupKind::new("rollout.kusionstack.io", "Rollout");
/// The maximum number of pods, replica sets or events per request.
const MOST: &str = "200";
/// The number of log lines that a failure shows.
const LINES: &str = "10";
/// The deadline for reading a log.
const LOG_DEADLINE: Duration = Duration::from_secs(10);
/// The maximum size of a log in bytes.
const LOG: usize = 16 * 1024;

/// Returns the related facts that need no request: whether objects of the kind get a status.
pub(crate) fn known_related(of: &ResourceType) -> Related {
    let mut related = Related::default();
    if of.reports_status {
        related.reporting.insert((of.group.clone(), of.kind.clone()));
    }
    related
}

/// Reads the related objects. Objects that may not be read are left out, which makes the result less precise.
pub(crate) async fn fetch_related(cluster: &Cluster, of: &ResourceType, object: &Value) -> Related {
    let mut related = known_related(of);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let core = format!("/api/v1/namespaces/{}", escape(namespace));
    let apps = format!("/apis/apps/v1/namespaces/{}", escape(namespace));
    let selector = selector(&object["spec"]["selector"]);
    match of.group_kind() {
        GroupKind::DEPLOYMENT
        | GroupKind::STATEFUL_SET
        | GroupKind::DAEMON_SET
        | GroupKind::REPLICA_SET
        | GroupKind::JOB => {
            // Without labels to select by, the list would contain all pods of the namespace.
            let Some(selector) = selector else { return related };
            let selected = |path: String| ApiRequest::get(path).query("labelSelector", selector.clone());
            let sets = selected(format!("{apps}/replicasets"));
            let failures = ApiRequest::get(format!("{core}/events"));
            let (pods, sets, events) = tokio::join!(
                list(cluster, selected(format!("{core}/pods")), "v1", "Pod"),
                async {
                    match of.group_kind() {
                        GroupKind::DEPLOYMENT => list(cluster, sets, "apps/v1", "ReplicaSet").await,
                        _ => Vec::new(),
                    }
                },
                list(
                    cluster,
                    failures.query("fieldSelector", "reason=FailedCreate"),
                    "v1",
                    "Event"
                ),
            );
            (related.pods, related.replica_sets, related.events) = (pods, sets, events);
        }
        KUSION_ROLLOUT => {
            let name = object["status"]["rolloutID"].as_str().unwrap_or_default();
            // An empty list means that the Rollout has no run; `None` would mean that the runs were not read.
            related.rollout_runs = Some(Vec::new());
            if !name.is_empty() {
                let api_version = of.api_version();
                let path = format!("/apis/{api_version}/namespaces/{}/rolloutruns", escape(namespace));
                let named = ApiRequest::get(path).query("fieldSelector", format!("metadata.name={name}"));
                related.rollout_runs = Some(list(cluster, named, &api_version, "RolloutRun").await);
            }
        }
        GroupKind::PERSISTENT_VOLUME_CLAIM => {
            let classes = ApiRequest::get("/apis/storage.k8s.io/v1/storageclasses");
            let (classes, pods) = tokio::join!(
                list(cluster, classes, "storage.k8s.io/v1", "StorageClass"),
                list(cluster, ApiRequest::get(format!("{core}/pods")), "v1", "Pod"),
            );
            (related.storage_classes, related.pods) = (classes, pods);
        }
        _ => {}
    }
    related
}

/// Returns `matchLabels` in the form `a=b,c=d`. `matchExpressions` would only narrow the list; owner
/// references decide which pods belong to the object.
fn selector(selector: &Value) -> Option<String> {
    let labels = selector["matchLabels"].as_object()?;
    let pair = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
    let pairs: Vec<_> = labels.iter().map(pair).collect::<Option<_>>()?;
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// Returns the items of a LIST, with their type added.
async fn list(cluster: &Cluster, request: ApiRequest, api_version: &str, kind: &str) -> Vec<Value> {
    let answer = match cluster.api.call(&request.query("limit", MOST)).await {
        Ok(mut answer) => answer.value["items"].take(),
        Err(error) => {
            tracing::debug!(error = %chain(&error), kind, "could not be listed");
            return Vec::new();
        }
    };
    let Value::Array(mut items) = answer else {
        return Vec::new();
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.insert("apiVersion".to_owned(), api_version.into());
        item.insert("kind".to_owned(), kind.into());
    }
    items
}

/// Collects evidence for an object that is not ready: warnings about the failing pod, and the end of its
/// container's log.
pub(crate) async fn evidence(cluster: &Cluster, object: &Value, related: &Related) -> String {
    let Some(culprit) = culprit(object, related) else {
        return String::new();
    };
    let (warnings, log) = tokio::join!(warnings(cluster, &culprit), log(cluster, &culprit));
    let mut text = String::new();
    for warning in warnings {
        text.push_str(&format!("\nevent {warning}"));
    }
    if !log.is_empty() {
        text.push_str(&format!(
            "\nlast lines of pod {}, container {}:\n{log}",
            culprit.pod, culprit.container
        ));
    }
    text
}

async fn warnings(cluster: &Cluster, culprit: &FailingPod) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{}/events", escape(&culprit.namespace));
    let about = format!(
        "involvedObject.kind=Pod,involvedObject.name={},type=Warning",
        culprit.pod
    );
    let request = ApiRequest::get(path).query("fieldSelector", about);
    let mut events = list(cluster, request, "v1", "Event").await;
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    events.sort_by_key(|event| {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"].map(|time| text(event, time));
        times.into_iter().find(|time| !time.is_empty())
    });
    let words = |event: &Value| {
        let about = event["involvedObject"]["fieldPath"].as_str().unwrap_or_default();
        // The form is `spec.containers{app}`.
        let container = about.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
        let container = container.map_or(String::new(), |name| format!(" (container {name})"));
        format!("{}{container}: {}", text(event, "reason"), text(event, "message"))
    };
    let mut all: Vec<_> = events.iter().map(words).collect();
    all.dedup();
    all.split_off(all.len().saturating_sub(3))
}

/// Returns the end of a log: of the previous run, if the program crashed and was restarted.
async fn log(cluster: &Cluster, culprit: &FailingPod) -> String {
    let tries: &[&str] = match culprit.log {
        Log::None => &[],
        Log::Previous => &["true", "false"],
        Log::Current => &["false"],
    };
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/log",
        escape(&culprit.namespace),
        escape(&culprit.pod)
    );
    for previous in tries {
        let request = ApiRequest::get(path.as_str())
            .query("container", culprit.container.as_str())
            .query("tailLines", LINES)
            .query("previous", *previous);
        let Ok(mut body) = cluster.api.open(&request).await else {
            continue;
        };
        let mut bytes = Vec::new();
        let read = async {
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
                if bytes.len() > LOG {
                    bytes.truncate(LOG);
                    break;
                }
            }
        };
        // After the deadline, the lines that were read until then are shown.
        let read = tokio::time::timeout(LOG_DEADLINE, read);
        drop(cluster.api.interrupt.unless_silent(read).await);
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        if !text.is_empty() {
            return text;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_make_a_selector() {
        let of = |labels: Value| selector(&json!({ "matchLabels": labels }));
        assert_eq!(
            of(json!({"app": "web", "tier": "front"})).as_deref(),
            Some("app=web,tier=front")
        );
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({"app": 1})), None);
        assert_eq!(selector(&Value::Null), None);
    }
}
