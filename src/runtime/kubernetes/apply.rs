//! Does what was planned: the same request as the dry-run, bound to the object that was looked at.

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    client::Request,
    cluster::Cluster,
    delete,
    discovery::ResourceType,
    dry_run,
    error::ApiError,
    fields, live,
    plan::{Subject, record},
    runtime::Kubernetes,
    triage, wait,
};
use crate::{
    error::{ErrorKind, Failure},
    model::plan::Action,
    runtime::{Applied, ApplySink, Planned, Scope},
    secrets::{is_last_applied, secret_texts},
};

/// How often a kind is asked for that was defined a moment ago.
const KIND_TRIES: u32 = 20;

/// One resource, to its end; every way out goes through [`ApplySink::ended`].
pub(super) async fn apply(
    runtime: &Kubernetes,
    _scope: &Scope,
    planned: Planned,
    sink: &dyn ApplySink,
) -> Result<(), Failure> {
    let id = planned.item.id.clone();
    let mut result = carry_out(runtime, &planned, sink).await;
    if let Err(failure) = &mut result {
        failure.message = runtime.secrets.mask(&failure.message);
        if planned.public.action == Action::Create && is_absent(runtime, &planned).await {
            sink.absent(&id).await?;
        }
    }
    sink.ended(&id, result).await
}

/// Whether an object is not there for certain. The answer to its creation may have been lost, so the server is asked
/// once more; one that can not be asked leaves it open.
async fn is_absent(runtime: &Kubernetes, planned: &Planned) -> bool {
    let Ok(subject) = Subject::of(runtime, &planned.item).await else {
        return false;
    };
    match &subject.of {
        Some(of) => matches!(live::get(&subject.cluster, of, &subject.name).await, Ok(None)),
        None => true,
    }
}

async fn carry_out(
    runtime: &Kubernetes,
    planned: &Planned,
    sink: &dyn ApplySink,
) -> Result<Applied, Failure> {
    let mut subject = Subject::of(runtime, &planned.item).await?;
    let cluster = std::sync::Arc::clone(&subject.cluster);
    if subject.of.is_none() {
        subject = wait_for_kind(runtime, planned, &cluster, sink).await?;
    }
    let Some(of) = subject.of.clone() else {
        return Err(Failure::new(
            ErrorKind::Kubernetes,
            format!(
                "cluster `{}` still does not know the kind of {}",
                cluster.api.name,
                subject.title()
            ),
        ));
    };
    let uid = planned.private["uid"].as_str();
    if planned.item.desired.is_some() {
        wait::prepare(runtime, &subject, &of, &planned.private["body"]).await;
    }
    match planned.public.action {
        Action::Unchanged | Action::Forget => {
            return Ok(Applied {
                id: planned.item.id.clone(),
                recorded: planned.recorded.clone(),
                live: planned.expected.clone(),
                sensitive: planned.sensitive.clone(),
            });
        }
        Action::Delete => {
            sink.fence().await?;
            delete::delete(runtime, &subject, &of, uid, sink, &planned.item.id).await?;
            return Ok(Applied {
                id: planned.item.id.clone(),
                recorded: None,
                live: None,
                sensitive: Vec::new(),
            });
        }
        Action::Replace if uid.is_some() => {
            sink.replacing(&planned.item.id).await?;
            sink.fence().await?;
            delete::delete(runtime, &subject, &of, uid, sink, &planned.item.id).await?;
        }
        // Of a replacement that an earlier run began only the new object is left to be made.
        Action::Create | Action::Replace => {
            if let Some(ending) = planned.private["ending"].as_str() {
                delete::wait_until_gone(runtime, &subject, &of, Some(ending), sink, &planned.item.id).await?;
            }
        }
        Action::Update | Action::Adopt | Action::Unknown => {}
    }
    sink.fence().await?;
    let guarded = (planned.public.action != Action::Replace)
        .then_some(uid)
        .flatten();
    // Between the write and its record nothing may fail.
    let guard = cluster.guard(&of).await?;
    let desired = planned.item.desired.as_ref();
    let desired = desired.ok_or_else(|| {
        Failure::new(
            ErrorKind::Internal,
            "nothing is wanted, yet something was written",
        )
    })?;
    let body = planned.private["body"].as_object().cloned().unwrap_or_default();
    let live = write(&subject, &of, planned, guarded).await?;
    let recorded = record(
        runtime,
        &planned.item,
        &subject,
        desired,
        &body,
        Some(&live),
        &guard,
    );
    let live = if runtime.options.wait && !wait::is_settled(runtime, &of, &live).await {
        sink.written(&planned.item.id, recorded.clone()).await?;
        wait::until_ready(runtime, &subject, &of, live, sink, &planned.item.id).await?
    } else {
        live
    };
    if of.kind == "CustomResourceDefinition" {
        cluster.forget_discovery().await;
    }
    Ok(Applied {
        id: planned.item.id.clone(),
        recorded: Some(recorded),
        sensitive: secret_texts(&live),
        live: Some(live),
    })
}

/// A kind that this run defined appears in discovery a moment after it is established.
async fn wait_for_kind(
    runtime: &Kubernetes,
    planned: &Planned,
    cluster: &Cluster,
    sink: &dyn ApplySink,
) -> Result<Subject, Failure> {
    let mut wait = std::time::Duration::from_millis(50);
    for attempt in 0.. {
        cluster.forget_discovery().await;
        let subject = Subject::of(runtime, &planned.item).await?;
        if subject.of.is_some() || attempt >= KIND_TRIES || sink.cancelled() {
            return Ok(subject);
        }
        sink.progress(&planned.item.id, "waiting for the cluster to know its kind");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(std::time::Duration::from_secs(2));
    }
    unreachable!("the loop ends by returning")
}

/// Sends the object. With a UID it is written only while it is still that object.
async fn write(
    subject: &Subject,
    of: &ResourceType,
    planned: &Planned,
    uid: Option<&str>,
) -> Result<Value, Failure> {
    let mut body = planned.private["body"].clone();
    let force = planned.private["force"] == true;
    if let Some(uid) = uid {
        body["metadata"]["uid"] = json!(uid);
        if planned.public.action == Action::Adopt {
            migrate(subject, of, uid, &planned.private["ours"]).await?;
        }
    }
    let request = dry_run::request(of, &subject.name, &body, force, false);
    let policy = crate::retry::Policy::default();
    // A kind or a namespace that was made a moment ago may not be known everywhere yet.
    let fresh = |error: &ApiError| match error.verdict() {
        crate::retry::Verdict::GiveUp if error.is_code(404) && uid.is_none() => crate::retry::Verdict::Retry,
        _ => crate::retry::Verdict::GiveUp,
    };
    let answer = policy.run(fresh, || subject.cluster.api.call(&request)).await;
    answer
        .map(|answer| answer.value)
        .map_err(|error| match error.conflicts().is_empty() {
            false => moved_meanwhile(subject, &error),
            true if triage::is_another_object(&error) => Failure::new(
                ErrorKind::Kubernetes,
                format!(
                    "{} is not the object any more that the plan saw: {error}",
                    subject.title()
                ),
            )
            .hint("run it again: a new plan sees what is there now"),
            true => subject.refusal(&error),
        })
}

fn moved_meanwhile(subject: &Subject, error: &ApiError) -> Failure {
    let fields: Vec<_> = error
        .conflicts()
        .iter()
        .map(|cause| dry_run::conflict_path(&cause.field))
        .collect();
    Failure::new(
        ErrorKind::Kubernetes,
        format!(
            "{}: another manager took {} since the plan was made: {error}",
            subject.title(),
            fields.join(", ")
        ),
    )
    .hint("run it again: a new plan shows who")
}

/// `kubectl apply` without `--server-side` owns its fields by *update*: left like that, a field that leaves the Spec would
/// stay in the object for ever (kubernetes/kubernetes#99003). So it gives up what becomes ours; the rest, of which the
/// plan showed nothing, stays there as it is.
async fn migrate(subject: &Subject, of: &ResourceType, uid: &str, ours: &Value) -> Result<(), Failure> {
    let Some(ours) = ours.as_object() else {
        return Ok(());
    };
    let path = of.object(subject.name.namespace(), &subject.name.name);
    let policy = crate::retry::Policy::default();
    let result = policy
        .run(
            |error: &ApiError| if error.is_code(409) { crate::retry::Verdict::Retry } else { crate::retry::Verdict::GiveUp },
            || async {
                let live = subject.cluster.api.call(&Request::get(path.clone())).await?.value;
                let Some(entries) = migrated(&live, ours) else {
                    return Ok(());
                };
                let patch = json!([
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
                ]);
                let mut request = Request::get(path.clone()).body("application/json-patch+json", &patch);
                request.method = Method::PATCH;
                subject.cluster.api.call(&request).await.map(|_| ())
            },
        )
        .await;
    result.map_err(|error| subject.refusal(&error))
}

/// The entries with `kubectl apply`'s own without the fields that become ours; `None` if it has none of them.
fn migrated(live: &Value, ours: &Map<String, Value>) -> Option<Vec<Value>> {
    let annotations = live["metadata"]["annotations"].as_object()?;
    annotations.keys().find(|name| is_last_applied(name))?;
    let mut entries = live["metadata"]["managedFields"].as_array()?.clone();
    let theirs = entries.iter_mut().find(|entry| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        entry["operation"] == "Update"
            && entry["subresource"].is_null()
            && matches!(manager, "kubectl-client-side-apply" | "kubectl")
    })?;
    let left = fields::without(theirs["fieldsV1"].as_object()?, ours);
    if theirs["fieldsV1"].as_object() == Some(&left) {
        return None;
    }
    theirs["fieldsV1"] = Value::Object(left);
    Some(entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kubectl_gives_up_what_becomes_ours_and_nothing_else() {
        let live = |annotation: &str, manager: &str| {
            json!({"metadata": {"annotations": {annotation: "{}"}, "managedFields": [
                {"manager": manager, "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
                {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:data": {"f:a": {}}}}]}})
        };
        let copy = "kubectl.kubernetes.io/last-applied-configuration";
        let ours = json!({"f:data": {"f:a": {}}});
        let migrated = |live: Value| migrated(&live, ours.as_object().unwrap());
        let entries = migrated(live(copy, "kubectl-client-side-apply")).unwrap();
        let left = |entry: &Value| (entry["manager"].clone(), entry["fieldsV1"].clone());
        assert_eq!(
            left(&entries[0]),
            (json!("kubectl-client-side-apply"), json!({"f:data": {"f:b": {}}}))
        );
        assert_eq!(left(&entries[1]), (json!("controller"), ours.clone()));
        assert!(migrated(live(copy, "kubectl-edit")).is_none());
        assert!(migrated(live("other", "kubectl-client-side-apply")).is_none());
    }
}
