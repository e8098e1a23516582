//! Executes a plan: the same request as the dry-run, bound to the object that was read.

mod creation;
mod delete;
mod early_failure;
mod field_takeover;
pub(super) mod missing_objects;
mod readiness;

use serde_json::{Value, json};

use self::{
    creation::{ExistingObject, Owner},
    delete::Dependents,
    readiness::WaitEnd,
};
use super::{
    OWNER,
    api::{
        clusters::Kubernetes, conflict_path::conflict_path, discovery::ResourceType, error::ApiError,
        error_classify,
    },
    object::{
        completed_jobs, fetch,
        object_record::{self, ObjectRecord, PreparedWrite},
        object_ref,
        plan_item::PlanItem,
        precondition::{self, Precondition, WriteKind},
    },
    plan::{dry_run, record},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{StackId, plan::Action, state::Recorded},
    retry::{self, RetryDecision},
    secrets::{without_texts, zeroize_texts},
};
use konverge_engine::runtime::{AppliedResource, ApplySink, Item, PlannedResource, StackScope};

/// How many times a kind is looked up that was defined a moment ago.
const KIND_TRIES: u32 = 20;

/// Applies one resource; every path ends in [`ApplySink::record_result`].
pub(super) async fn apply(
    runtime: &Kubernetes,
    scope: &StackScope,
    planned: PlannedResource,
    sink: &dyn ApplySink,
) -> Result<(), UserError> {
    let id = planned.item.id.clone();
    let mut result = carry_out(runtime, scope, &planned, sink).await;
    if let Err(failure) = &mut result {
        failure.message = runtime.secrets.mask(&failure.message);
        if planned.public.action == Action::Create && nothing_was_made(runtime, scope, &planned).await {
            sink.absent(&id).await?;
        }
    }
    sink.record_result(&id, result).await
}

/// Returns true if this stack certainly created nothing: there is no object, or it belongs to another stack.
/// The answer to the create may have been lost, so the server is asked again; without an answer the result is
/// false.
async fn nothing_was_made(runtime: &Kubernetes, scope: &StackScope, planned: &PlannedResource) -> bool {
    let Ok(subject) = PlanItem::resolve(runtime, &planned.item).await else {
        return false;
    };
    let Some(of) = subject.readable() else {
        return true;
    };
    match fetch::get(&subject.cluster, of, &subject.name).await {
        Ok(None) => true,
        Ok(Some(object)) => matches!(
            creation::owner(&object, (&scope.stack, planned.item.is_shared())),
            Owner::Other(_)
        ),
        Err(_) => false,
    }
}

async fn carry_out(
    runtime: &Kubernetes,
    scope: &StackScope,
    planned: &PlannedResource,
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    let prepared: &PreparedWrite = planned.preparation.get()?;
    let subject = resolve_subject(runtime, planned, sink).await?;
    let Some(of) = subject.of.clone() else {
        let body = prepared.body.as_ref();
        let version = body.and_then(|body| body["apiVersion"].as_str());
        return Err(subject.not_served(version.unwrap_or_default()));
    };
    let target = (&subject, &*of);
    let mut seen = prepared.precondition.clone();
    if let Some(body) = &prepared.body {
        readiness::prepare(runtime, &subject, &of, body).await;
    }
    // Before anything is deleted: without a value everything stays unchanged.
    let filled = FilledBody::new(runtime, scope, prepared).await?;
    match planned.public.action {
        Action::Unchanged | Action::Forget => {
            return still_to_become_ready(runtime, &subject, &of, planned, sink).await;
        }
        Action::Delete => return delete_object(runtime, target, planned, seen, sink).await,
        // For a replacement that an earlier run started, only the creation of the new object may remain.
        Action::Replace => {
            if let Some(seen) = seen.take() {
                delete_replaced(runtime, target, planned, prepared, seen, sink).await?;
            }
        }
        Action::Create | Action::Update | Action::Adopt | Action::Unknown => {}
    }
    if let Some(ending) = prepared.ending.as_deref() {
        delete::wait_until_gone(runtime, &subject, &of, Some(ending), sink, &planned.item.id).await?;
    }
    let (live, recorded) = write_and_record(runtime, scope, target, planned, filled, seen, sink).await?;
    become_ready(runtime, target, planned, (live, recorded), sink).await
}

/// The object in its cluster. It waits for a kind that was defined a moment ago.
async fn resolve_subject(
    runtime: &Kubernetes,
    planned: &PlannedResource,
    sink: &dyn ApplySink,
) -> Result<PlanItem, UserError> {
    let mut subject = PlanItem::resolve(runtime, &planned.item).await?;
    if subject.of.is_none() {
        subject.cluster.forget_discovery().await;
        subject = PlanItem::awaited(runtime, &planned.item, |attempt| {
            sink.progress(&planned.item.id, "waiting until the cluster serves its kind");
            attempt >= KIND_TRIES || sink.cancelled()
        })
        .await?;
    }
    subject.places = object_record::secret_places(&planned.item);
    Ok(subject.with_policy_of(planned.recorded.as_ref()))
}

async fn delete_object(
    runtime: &Kubernetes,
    (subject, of): (&PlanItem, &ResourceType),
    planned: &PlannedResource,
    seen: Option<Precondition>,
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    sink.fence().await?;
    if let Some(seen) = seen {
        let go = Dependents::Go;
        delete::delete(runtime, subject, of, seen, go, sink, &planned.item.id).await?;
    }
    Ok(AppliedResource {
        id: planned.item.id.clone(),
        recorded: None,
        live: None,
        sensitive: Vec::new(),
        waiting: None,
    })
}

/// Deletes the object that a new one replaces. What depends on it stays if its volume claims can grow in place.
async fn delete_replaced(
    runtime: &Kubernetes,
    (subject, of): (&PlanItem, &ResourceType),
    planned: &PlannedResource,
    prepared: &PreparedWrite,
    seen: Precondition,
    sink: &dyn ApplySink,
) -> Result<(), UserError> {
    sink.replacing(&planned.item.id).await?;
    sink.fence().await?;
    let mut dependents = Dependents::Go;
    if let Some(expansion) = &prepared.expansion {
        let grown = expansion.carry_out(&subject.cluster, false).await;
        grown.map_err(|error| subject.refusal(&error).context("expanding its volume claims"))?;
        dependents = Dependents::Stay;
    }
    delete::delete(runtime, subject, of, seen, dependents, sink, &planned.item.id).await
}

/// Writes the object. Returns it, and its record.
async fn write_and_record(
    runtime: &Kubernetes,
    scope: &StackScope,
    (subject, of): (&PlanItem, &ResourceType),
    planned: &PlannedResource,
    filled: FilledBody<'_>,
    seen: Option<Precondition>,
    sink: &dyn ApplySink,
) -> Result<(Value, Recorded), UserError> {
    sink.fence().await?;
    // Nothing may fail between the write and its record.
    let guard = subject.cluster.guard(of, subject.name.namespace()).await?;
    let body = filled.body().and_then(Value::as_object);
    let (Some(desired), Some(body)) = (&planned.item.desired, body) else {
        return Err(UserError::new(
            ErrorKind::Internal,
            "the plan writes an object and has no object to write",
        ));
    };
    let copy = WrittenBody {
        body: Value::Object(body.clone()),
        secret: filled.paths(),
    };
    let prepared = filled.prepared;
    let values = subject.places.texts(&copy.body);
    let written = write((subject, of), (&planned.item, prepared, copy), seen, &scope.stack).await;
    let live = written.map_err(|failure| without_texts(failure, &values))?;
    let mut recorded = record(
        runtime,
        &planned.item,
        subject,
        desired,
        body,
        Some(&live),
        Some(&guard),
    );
    if let Some(references) = &prepared.references {
        ObjectRecord::update(&mut recorded, |record| record.references = references.written());
    }
    Ok((live, recorded))
}

/// Waits until a written object is ready. Until then its record says that it is not.
async fn become_ready(
    runtime: &Kubernetes,
    (subject, of): (&PlanItem, &ResourceType),
    planned: &PlannedResource,
    (mut live, mut recorded): (Value, Recorded),
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    if runtime.options.wait && !readiness::is_settled(runtime, subject, of, &live).await {
        let unready = object_record::mark_unready(recorded.clone(), true);
        sink.record_written(&planned.item.id, unready.clone()).await?;
        match readiness::until_ready(runtime, subject, of, live, sink, &planned.item.id).await? {
            WaitEnd::Ready(ready) => live = ready,
            WaitEnd::Waiting(live, waiting, why) => {
                return Ok(AppliedResource {
                    id: planned.item.id.clone(),
                    recorded: Some(unready),
                    sensitive: subject.secret_texts(&live),
                    live: Some(live),
                    waiting: Some((waiting, why)),
                });
            }
        }
    }
    if of.kind == "CustomResourceDefinition" {
        subject.cluster.forget_discovery().await;
    }
    completed_jobs::note(&mut recorded, &live);
    Ok(AppliedResource {
        id: planned.item.id.clone(),
        recorded: Some(recorded),
        sensitive: subject.secret_texts(&live),
        live: Some(live),
        waiting: None,
    })
}

/// The object that is written, with the values of its references. They are overwritten when it is dropped.
struct FilledBody<'a> {
    prepared: &'a PreparedWrite,
    /// The object with values, and their paths.
    filled: Option<(Value, Vec<&'a str>)>,
}

impl<'a> FilledBody<'a> {
    async fn new(
        runtime: &Kubernetes,
        scope: &StackScope,
        prepared: &'a PreparedWrite,
    ) -> Result<Self, UserError> {
        let mut whole = Self {
            prepared,
            filled: None,
        };
        let parts = (
            &prepared.references,
            &prepared.body,
            runtime.references.as_deref(),
        );
        if let (Some(references), Some(body), Some(resolver)) = parts {
            let mut body = body.clone();
            let paths = references.fill_in(resolver, &scope.stack, &mut body).await?;
            whole.filled = Some((body, paths));
        }
        Ok(whole)
    }

    fn body(&self) -> Option<&Value> {
        let filled = self.filled.as_ref().map(|(body, _)| body);
        filled.or(self.prepared.body.as_ref())
    }
}

impl FilledBody<'_> {
    /// The paths of the values.
    fn paths(&self) -> Vec<&str> {
        self.filled.iter().flat_map(|(_, paths)| paths).copied().collect()
    }
}

/// The copy of an object that is sent. Its values of references are overwritten when it is dropped.
struct WrittenBody<'a> {
    body: Value,
    secret: Vec<&'a str>,
}

impl Drop for WrittenBody<'_> {
    fn drop(&mut self) {
        zeroize_texts(&mut self.body, self.secret.iter().copied());
    }
}

impl Drop for FilledBody<'_> {
    fn drop(&mut self) {
        if let Some((body, paths)) = &mut self.filled {
            zeroize_texts(body, paths.iter().copied());
        }
    }
}

/// Waits for an object that an earlier run wrote; nothing is written.
async fn still_to_become_ready(
    runtime: &Kubernetes,
    subject: &PlanItem,
    of: &ResourceType,
    planned: &PlannedResource,
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    let waits = planned.unready && runtime.options.wait;
    let mut live = planned.expected.clone();
    let mut waiting = None;
    if waits {
        let found = fetch::get(&subject.cluster, of, &subject.name).await?;
        let found = found.ok_or_else(|| precondition::another_object(subject, "it is gone"))?;
        live = Some(
            match readiness::until_ready(runtime, subject, of, found, sink, &planned.item.id).await? {
                WaitEnd::Ready(ready) => ready,
                WaitEnd::Waiting(object, for_what, why) => {
                    waiting = Some((for_what, why));
                    object
                }
            },
        );
    }
    let is_unready = planned.unready && (!waits || waiting.is_some());
    let recorded = planned.recorded.clone();
    Ok(AppliedResource {
        id: planned.item.id.clone(),
        recorded: recorded.map(|recorded| object_record::mark_unready(recorded, is_unready)),
        sensitive: live
            .as_ref()
            .map(|live| subject.secret_texts(live))
            .unwrap_or_default(),
        live,
        waiting,
    })
}

/// Sends the object. An object that was read is written only while it is the same object with the same owner.
/// An object that did not exist is created, and no existing object is overwritten.
async fn write(
    (subject, of): (&PlanItem, &ResourceType),
    (item, prepared, mut body): (&Item, &PreparedWrite, WrittenBody<'_>),
    mut seen: Option<Precondition>,
    stack: &StackId,
) -> Result<Value, UserError> {
    let body = &mut body.body;
    let owner = object_ref::annotation(body, OWNER).unwrap_or_default().to_owned();
    let doing = match item.is_shared() {
        true => WriteKind::WritingShared(stack),
        false => WriteKind::WritingFor(&owner),
    };
    if let Some(found) = seen.take() {
        seen = Some(field_takeover::take_over(subject, of, (found, doing), &prepared.claim).await?);
    }
    let policy = retry::RetryPolicy::default();
    // A kind or a namespace that was created a moment ago may not be known everywhere yet.
    let fresh = |error: &ApiError| match error.verdict() {
        RetryDecision::GiveUp if error.is_code(404) && seen.is_none() => RetryDecision::Retry,
        RetryDecision::GiveUp if dry_run::may_pass(error, of, &item.needs) => RetryDecision::Retry,
        _ => RetryDecision::GiveUp,
    };
    let mut bound = seen.clone();
    for attempt in 1.. {
        match &bound {
            Some(seen) => {
                body["metadata"]["uid"] = json!(seen.uid);
                body["metadata"]["resourceVersion"] = json!(seen.version);
                if let Some(owner) = seen
                    .owner()
                    .filter(|owner| item.is_shared() && stack.is_sibling_of(owner))
                {
                    body["metadata"]["annotations"][OWNER] = json!(owner);
                }
            }
            None => creation::only_create(body),
        }
        let mut request = dry_run::request(of, &subject.name, body, prepared.force, false);
        request.bound = true;
        let error = match policy.run(fresh, || subject.cluster.api.call(&request)).await {
            Ok(answer) => return Ok(answer.value),
            Err(error) => error,
        };
        if !error.conflicts().is_empty() {
            return Err(takeover_conflict(subject, &error));
        }
        bound = match bound {
            Some(seen) if error.is_code(409) && attempt < precondition::TRIES => {
                let now = seen.refetch(subject, of, doing).await?;
                Some(now.ok_or_else(|| precondition::another_object(subject, "it is gone"))?)
            }
            None if error.is_code(409) && attempt < precondition::TRIES => {
                match creation::classify_existing(subject, of, (stack, item.is_shared())).await? {
                    // This is also the answer if others use a quota at the same time.
                    ExistingObject::Nothing => {
                        tokio::time::sleep(std::time::Duration::from_millis(100) * attempt).await;
                        None
                    }
                    ExistingObject::Ours(seen) | ExistingObject::Shared(seen) => Some(seen),
                }
            }
            _ if error_classify::is_another_object(&error) => {
                return Err(precondition::another_object(subject, &error));
            }
            _ => return Err(subject.refusal(&error)),
        };
    }
    unreachable!("the loop ends by returning")
}

fn takeover_conflict(subject: &PlanItem, error: &ApiError) -> UserError {
    let fields: Vec<_> = error
        .conflicts()
        .iter()
        .map(|cause| conflict_path(&cause.field))
        .collect();
    UserError::new(
        ErrorKind::Kubernetes,
        format!(
            "{}: another field manager took over {} after the plan: {error}",
            subject.title(),
            fields.join(", ")
        ),
    )
    .hint("run it again: a new plan shows who")
}
