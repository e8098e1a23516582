//! Writes an object with the same request as the dry-run, bound to the object that was read, but with the
//! values of secret references.

use serde_json::{Value, json};
use tracing::Instrument as _;

use super::{
    apply_task::ApplyTask,
    creation,
    field_takeover::{self, Claim},
};
use crate::{
    FIELD_MANAGER, OWNER,
    api::{conflict_path::conflict_path, error::ApiError, error_classify},
    object::{
        field_ownership::Transfer,
        object_record::{ObjectRecord, PreparedWrite},
        object_ref,
        plan_item::PlanItem,
        precondition::{self, Precondition, WriteKind},
    },
    plan::{dry_run, record},
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{FieldPath, state::Recorded},
    retry::{self, RetryDecision},
    spans,
};
use konverge_engine::runtime::StackScope;
use konverge_secrets::{without_texts, zeroize_texts};

/// Writes the object. Returns the object and its record.
pub(super) async fn write_and_record(
    task: ApplyTask<'_>,
    filled: FilledBody<'_>,
    seen: Option<Precondition>,
) -> Result<(Value, Recorded), UserError> {
    let ApplyTask { subject, of, .. } = task;
    // Without the lease, another run may be writing the same object.
    task.sink.check_lease().await?;
    // The guard is queried before the write, because nothing may fail between the write and its record.
    let guard = subject.cluster.guard(of, subject.name.namespace()).await?;
    let body = filled.body().and_then(Value::as_object);
    let (Some(desired), Some(body)) = (&task.planned.item.desired, body) else {
        let what = "the plan writes an object and has no object to write";
        return Err(UserError::new(ErrorKind::Internal, what));
    };
    let copy = SecretBody {
        body: Value::Object(body.clone()),
        paths: filled
            .filled
            .as_ref()
            .map_or_else(Vec::new, |filled| filled.paths.clone()),
    };
    let prepared = filled.prepared;
    // The server may quote these values in its refusal, so they are collected for masking.
    let values = subject.places.texts(&copy.body);
    let written = write(task, prepared, copy, seen).await;
    let live = written.map_err(|failure| without_texts(failure, &values))?;
    let mut recorded = record(
        task.runtime,
        &task.planned.item,
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

/// The object to write.
pub(super) struct FilledBody<'a> {
    prepared: &'a PreparedWrite,
    /// The object with the values of its secret references, if it has any.
    filled: Option<SecretBody<'a>>,
}

impl<'a> FilledBody<'a> {
    pub(super) async fn new(scope: &StackScope, prepared: &'a PreparedWrite) -> Result<Self, UserError> {
        let mut whole = Self {
            prepared,
            filled: None,
        };
        let parts = (&prepared.references, &prepared.body, scope.references.resolver());
        if let (Some(references), Some(body), Some(resolver)) = parts {
            let mut body = body.clone();
            let paths = references.fill_in(resolver, &mut body).await?;
            whole.filled = Some(SecretBody { body, paths });
        }
        Ok(whole)
    }

    fn body(&self) -> Option<&Value> {
        let filled = self.filled.as_ref().map(|filled| &filled.body);
        filled.or(self.prepared.body.as_ref())
    }
}

/// An object with values of secret references at these paths, which are overwritten in memory on drop.
struct SecretBody<'a> {
    body: Value,
    paths: Vec<&'a FieldPath>,
}

impl Drop for SecretBody<'_> {
    fn drop(&mut self) {
        zeroize_texts(&mut self.body, self.paths.iter().copied());
    }
}

/// Sends the object. An existing object is written only if it is still the one that was read, with the same
/// owner. An object that did not exist is created without overwriting one that exists by now.
async fn write(
    task: ApplyTask<'_>,
    prepared: &PreparedWrite,
    mut body: SecretBody<'_>,
    mut seen: Option<Precondition>,
) -> Result<Value, UserError> {
    let ApplyTask { subject, of, .. } = task;
    let (item, stack) = (&task.planned.item, &task.scope.stack);
    let body = &mut body.body;
    let owner = object_ref::annotation(body, OWNER).unwrap_or_default().to_owned();
    let doing = if item.is_shared() {
        WriteKind::WritingShared(stack)
    } else {
        WriteKind::WritingFor(&owner)
    };
    if let Some(found) = seen.take() {
        seen = Some(take_over(task, prepared, body, found, doing).await?);
    }
    let policy = retry::RetryPolicy::default();
    // API servers may learn of a new kind or namespace with a delay, so 404 is retried.
    let fresh = |error: &ApiError| match error.verdict() {
        RetryDecision::GiveUp if error.is_code(404) && seen.is_none() => RetryDecision::Retry,
        RetryDecision::GiveUp if dry_run::may_pass(error, of, &item.needs) => RetryDecision::Retry,
        _ => RetryDecision::GiveUp,
    };
    // A conflict means that the object was written after it was read. It is read and written again, unless it
    // is another object now or has another owner.
    let mut bound = seen.clone();
    for attempt in 1.. {
        match &bound {
            Some(seen) => {
                body["metadata"]["uid"] = json!(seen.uid);
                body["metadata"]["resourceVersion"] = json!(seen.version);
                // Another stack of the project may have created the shared object first, and stays its owner.
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
        // A conflict is handled below: a retry of the same request would name an outdated version again.
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
                let existing = creation::find_existing(subject, of, stack, item.is_shared()).await?;
                if existing.is_none() {
                    // The server also returns this if others use a quota at the same time, so the write is
                    // repeated.
                    let pause = std::time::Duration::from_millis(100) * attempt;
                    let waited = tokio::time::sleep(pause).instrument(spans::wait("another try"));
                    waited.await;
                }
                existing
            }
            _ if error_classify::is_another_object(&error) => {
                return Err(precondition::another_object(subject, &error));
            }
            _ => return Err(subject.refusal_of(&error, body, None)),
        };
    }
    unreachable!("the loop ends by returning")
}

/// Takes over the fields that Konverge must own before the write. The dry-run shows which fields updating
/// managers share with Konverge. If there was no dry-run, because fields outside the Spec blocked it, another
/// one is made after those fields were taken over.
async fn take_over(
    task: ApplyTask<'_>,
    prepared: &PreparedWrite,
    body: &Value,
    seen: Precondition,
    doing: WriteKind<'_>,
) -> Result<Precondition, UserError> {
    let ApplyTask { subject, of, .. } = task;
    let claim = Claim {
        fields: &prepared.claim,
        blocking: &prepared.blocking,
    };
    let seen = field_takeover::take_over(subject, of, seen, doing, claim).await?;
    if prepared.blocking.is_empty() {
        return Ok(seen);
    }
    let live = precondition::read_again(subject, of).await?;
    let request = dry_run::request(of, &subject.name, body, prepared.force, true);
    let asked = dry_run::send(&subject.cluster, of, &request, &task.planned.item.needs).await;
    let becomes = asked.map_err(|error| subject.refusal(&error))?.value;
    let is_ignored = |path: &FieldPath| task.scope.ignore.iter().any(|ignored| path.is_within(ignored));
    let fields = Transfer::between(FIELD_MANAGER, &live, &becomes, is_ignored).claim;
    let claim = Claim {
        fields: &fields,
        blocking: &[],
    };
    field_takeover::take_over(subject, of, seen, doing, claim).await
}

fn takeover_conflict(subject: &PlanItem, error: &ApiError) -> UserError {
    let fields = error
        .conflicts()
        .into_iter()
        .map(|cause| conflict_path(&cause.field));
    let what = format!(
        "{}: another field manager took over {} after the plan: {}",
        subject.title(),
        fields.collect::<Vec<_>>().join(", "),
        chain(error)
    );
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("run the command again: the new plan shows who owns the fields")
}
