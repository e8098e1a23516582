//! Finds recorded objects that no longer exist. They are read as for a plan: by LIST for each type, or by GET
//! if there are only a few.

use std::{collections::HashSet, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::super::{
    api::{clusters::Kubernetes, json_ref::JsonRef},
    object::{
        completed_jobs,
        fetch::{self, RawObject},
        object_record::ObjectRecord,
        plan_item::PlanItem,
    },
    plan::{observe::fetch_live, unreadable_error},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{GroupKind, ResourceId, state::Recorded},
};
use konverge_engine::runtime::Item;

/// Returns the items whose live object is gone, is being deleted, or is not the recorded one. Objects that
/// only deleted objects own are deleted by the garbage collector a moment later, which this function waits
/// for.
///
/// # Errors
/// A cluster or one of its APIs does not respond, or the garbage collector does not delete an object in time.
pub(crate) async fn find_missing(
    runtime: &Kubernetes,
    items: &[Item],
    earlier: &[Recorded],
) -> Result<Vec<ResourceId>, UserError> {
    let mut subjects = Vec::with_capacity(items.len());
    for item in items {
        let subject = PlanItem::resolve(runtime, item).await?;
        if let Some(silent) = &subject.silent {
            return Err(unreadable_error(&subject, silent));
        }
        subjects.push(subject);
    }
    let mut deleted: HashSet<String> = earlier.iter().filter_map(ObjectRecord::uid_of).collect();
    if !deleted.is_empty() {
        let now: HashSet<_> = items
            .iter()
            .filter_map(|item| ObjectRecord::uid_of(item.prior.as_ref()?))
            .collect();
        deleted.retain(|uid| !now.contains(uid));
    }
    let looked_up: Vec<_> = subjects.iter().map(Some).collect();
    let found = fetch_live(&looked_up).await?;
    let mut missing = Vec::new();
    for ((item, subject), raw) in items.iter().zip(&subjects).zip(&found) {
        let Some(recorded) = &item.prior else { continue };
        let is_there = match raw {
            Some(raw) if is_recorded_object(recorded, raw) => {
                if deleted.is_empty() {
                    true
                } else {
                    let live = raw.read(&subject.cluster)?;
                    stays(runtime, subject, recorded, live, &deleted).await?
                }
            }
            Some(_) => false,
            None => completed_jobs::expired_by_ttl(recorded),
        };
        if !is_there {
            if subject.name.group_kind() == GroupKind::CUSTOM_RESOURCE_DEFINITION {
                // The kind of this CustomResourceDefinition is no longer served, so the cached discovery is
                // outdated.
                subject.cluster.forget_discovery().await;
            }
            missing.push(item.id.clone());
        }
    }
    Ok(missing)
}

/// Returns true if the live object is the recorded one and is not being deleted. A record from Kusion has no
/// UID.
fn is_recorded_object(recorded: &Recorded, raw: &RawObject) -> bool {
    let live = raw.parse();
    let metadata = |key: &str| live.as_ref()?.get("metadata")?.get(key);
    let has_uid = |uid: String| metadata("uid").is_some_and(|live: &JsonRef<'_>| live.text() == uid);
    ObjectRecord::uid_of(recorded).is_none_or(has_uid) && metadata("deletionTimestamp").is_none()
}

/// Returns true if an object has owners, and all of them were deleted.
fn is_left_by_owners(live: &Value, deleted: &HashSet<String>) -> bool {
    let owners = live["metadata"]["ownerReferences"].as_array();
    let is_deleted = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| deleted.contains(uid));
    owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(is_deleted))
}

/// Waits until the garbage collector deletes an object whose owners were deleted. Returns true if the object
/// stays, because it has another owner, or no owner any more.
async fn stays(
    runtime: &Kubernetes,
    subject: &PlanItem,
    recorded: &Recorded,
    mut live: Value,
    deleted: &HashSet<String>,
) -> Result<bool, UserError> {
    let Some(of) = subject.readable() else {
        return Ok(false);
    };
    let interrupt = &subject.cluster.api.interrupt;
    let deadline = Instant::now() + runtime.options.ready_timeout;
    let mut pause = Duration::from_millis(50);
    while is_left_by_owners(&live, deleted) {
        if interrupt.is_asked() || Instant::now() + pause > deadline {
            return Err(left_over(subject, &live));
        }
        interrupt.pause(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
        let Some(now) = fetch::get(&subject.cluster, of, &subject.name).await? else {
            return Ok(false);
        };
        let is_other =
            ObjectRecord::uid_of(recorded).is_some_and(|uid| now["metadata"]["uid"] != uid.as_str());
        if is_other || !now["metadata"]["deletionTimestamp"].is_null() {
            return Ok(false);
        }
        live = now;
    }
    Ok(true)
}

fn left_over(subject: &PlanItem, live: &Value) -> UserError {
    let owner = live["metadata"]["ownerReferences"][0]["name"].as_str();
    let what = format!(
        "{} belongs to an earlier object `{}`, which was deleted: the cluster is about to delete it too",
        subject.title(),
        owner.unwrap_or_default().escape_debug()
    );
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("run the command again when the object is gone: then the object is created again")
        .hint("if the object is to stay, remove the outdated entry of its `ownerReferences`")
}
