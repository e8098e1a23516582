//! Does what was planned: the same request as the dry-run, bound to the object that was looked at.

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    OWNER,
    client::Request,
    delete::{self, Dependents},
    discovery::ResourceType,
    dry_run,
    error::ApiError,
    expansion::Expansion,
    fields, jobs, live,
    plan::{Subject, record},
    runtime::Kubernetes,
    seen::{self, Doing, Seen},
    triage, wait,
};
use crate::{
    error::{ErrorKind, Failure},
    model::plan::Action,
    retry::{self, Verdict},
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
    match subject.readable() {
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
        cluster.forget_discovery().await;
        subject = Subject::awaited(runtime, &planned.item, |attempt| {
            sink.progress(&planned.item.id, "waiting for the cluster to know its kind");
            attempt >= KIND_TRIES || sink.cancelled()
        })
        .await?;
    }
    let Some(of) = subject.of.clone() else {
        return Err(subject.not_served(planned.private["body"]["apiVersion"].as_str().unwrap_or_default()));
    };
    let mut seen = Seen::kept(&planned.private);
    if planned.item.desired.is_some() {
        wait::prepare(runtime, &subject, &of, &planned.private["body"]).await;
    }
    match planned.public.action {
        Action::Unchanged | Action::Forget => {
            return still_to_become_ready(runtime, &subject, &of, planned, sink).await;
        }
        Action::Delete => {
            sink.fence().await?;
            if let Some(seen) = seen {
                let go = Dependents::Go;
                delete::delete(runtime, &subject, &of, seen, go, sink, &planned.item.id).await?;
            }
            return Ok(Applied {
                id: planned.item.id.clone(),
                recorded: None,
                live: None,
                sensitive: Vec::new(),
            });
        }
        Action::Replace => {
            // Of one that an earlier run began only the new object may be left to be made.
            if let Some(seen) = seen.take() {
                sink.replacing(&planned.item.id).await?;
                sink.fence().await?;
                let mut dependents = Dependents::Go;
                if let Some(expansion) = Expansion::kept(&planned.private) {
                    let grown = expansion.carry_out(&cluster, false).await;
                    grown.map_err(|error| subject.refusal(&error).within("expanding its volume claims"))?;
                    dependents = Dependents::Stay;
                }
                delete::delete(runtime, &subject, &of, seen, dependents, sink, &planned.item.id).await?;
            }
        }
        Action::Create | Action::Update | Action::Adopt | Action::Unknown => {}
    }
    if let Some(ending) = planned.private["ending"].as_str() {
        delete::wait_until_gone(runtime, &subject, &of, Some(ending), sink, &planned.item.id).await?;
    }
    sink.fence().await?;
    // Between the write and its record nothing may fail.
    let guard = cluster.guard(&of, subject.name.namespace()).await?;
    let desired = planned.item.desired.as_ref();
    let desired = desired.ok_or_else(|| {
        Failure::new(
            ErrorKind::Internal,
            "nothing is wanted, yet something was written",
        )
    })?;
    let body = planned.private["body"].as_object().cloned().unwrap_or_default();
    let live = write(&subject, &of, planned, seen).await?;
    let mut recorded = record(
        runtime,
        &planned.item,
        &subject,
        desired,
        &body,
        Some(&live),
        Some(&guard),
    );
    let live = if runtime.options.wait && !wait::is_settled(runtime, &of, &live).await {
        let unready = wait::marked(recorded.clone(), true);
        sink.written(&planned.item.id, unready).await?;
        wait::until_ready(runtime, &subject, &of, live, sink, &planned.item.id).await?
    } else {
        live
    };
    if of.kind == "CustomResourceDefinition" {
        cluster.forget_discovery().await;
    }
    jobs::note(&mut recorded, &live);
    Ok(Applied {
        id: planned.item.id.clone(),
        recorded: Some(recorded),
        sensitive: secret_texts(&live),
        live: Some(live),
    })
}

/// Nothing is written, but what an earlier run wrote is waited for.
async fn still_to_become_ready(
    runtime: &Kubernetes,
    subject: &Subject,
    of: &ResourceType,
    planned: &Planned,
    sink: &dyn ApplySink,
) -> Result<Applied, Failure> {
    let waits = planned.unready && runtime.options.wait;
    let mut live = planned.expected.clone();
    if waits {
        let found = live::get(&subject.cluster, of, &subject.name).await?;
        let found = found.ok_or_else(|| seen::another_object(subject, "it is gone"))?;
        live = Some(wait::until_ready(runtime, subject, of, found, sink, &planned.item.id).await?);
    }
    let recorded = planned.recorded.clone();
    Ok(Applied {
        id: planned.item.id.clone(),
        recorded: recorded.map(|recorded| wait::marked(recorded, planned.unready && !waits)),
        sensitive: live.as_ref().map(secret_texts).unwrap_or_default(),
        live,
    })
}

/// Sends the object. One that was seen is written only while it is still that object, and still whose it was.
async fn write(
    subject: &Subject,
    of: &ResourceType,
    planned: &Planned,
    mut seen: Option<Seen>,
) -> Result<Value, Failure> {
    let annotations = &planned.private["body"]["metadata"]["annotations"];
    let doing = Doing::WritingFor(annotations[OWNER].as_str().unwrap_or_default());
    if let Some(found) = seen.take_if(|_| planned.public.action == Action::Adopt) {
        seen = Some(migrate(subject, of, (found, doing), &planned.private["ours"]).await?);
    }
    let force = planned.private["force"] == true;
    let policy = retry::Policy::default();
    // A kind or a namespace that was made a moment ago may not be known everywhere yet.
    let fresh = |error: &ApiError| match error.verdict() {
        Verdict::GiveUp if error.is_code(404) && seen.is_none() => Verdict::Retry,
        Verdict::GiveUp if dry_run::may_pass(error, of, &planned.item.needs) => Verdict::Retry,
        _ => Verdict::GiveUp,
    };
    let mut bound = seen.clone();
    for attempt in 1.. {
        let mut body = planned.private["body"].clone();
        if let Some(seen) = &bound {
            body["metadata"]["uid"] = json!(seen.uid);
            body["metadata"]["resourceVersion"] = json!(seen.version);
        }
        let mut request = dry_run::request(of, &subject.name, &body, force, false);
        request.bound = bound.is_some();
        let error = match policy.run(fresh, || subject.cluster.api.call(&request)).await {
            Ok(answer) => return Ok(answer.value),
            Err(error) => error,
        };
        if !error.conflicts().is_empty() {
            return Err(moved_meanwhile(subject, &error));
        }
        bound = match bound {
            Some(seen) if error.is_code(409) && attempt < seen::TRIES => {
                let now = seen.again(subject, of, doing).await?;
                Some(now.ok_or_else(|| seen::another_object(subject, "it is gone"))?)
            }
            _ if triage::is_another_object(&error) => return Err(seen::another_object(subject, &error)),
            _ => return Err(subject.refusal(&error)),
        };
    }
    unreachable!("the loop ends by returning")
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
async fn migrate(
    subject: &Subject,
    of: &ResourceType,
    (seen, doing): (Seen, Doing<'_>),
    ours: &Value,
) -> Result<Seen, Failure> {
    let Some(ours) = ours.as_object() else {
        return Ok(seen);
    };
    let path = of.object(subject.name.namespace(), &subject.name.name);
    for attempt in 1.. {
        let live = live::get(&subject.cluster, of, &subject.name).await?;
        let live = live.ok_or_else(|| seen::another_object(subject, "it is gone"))?;
        let now = seen.still(&live, subject, doing)?;
        let Some(entries) = migrated(&live, ours) else {
            return Ok(now);
        };
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": now.uid},
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": now.version},
        ]);
        let mut request = Request::get(path.clone()).body("application/json-patch+json", &patch);
        (request.method, request.bound) = (Method::PATCH, true);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => return Ok(Seen::of(&answer.value)),
            Err(error) if error.is_code(409) && attempt < seen::TRIES => {}
            Err(error) => return Err(subject.refusal(&error)),
        }
    }
    unreachable!("the loop ends by returning")
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
