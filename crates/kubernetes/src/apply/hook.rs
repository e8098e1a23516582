//! Runs the Job of a hook to its end, once for each stamp.
//!
//! The record of the run is stored before it is waited for, with the UID of the Job. A run after a kill finds the Job by
//! its stamp and waits for it. Only a run whose end was seen, or whose Job is lost, is followed by another one.

use http::Method;
use serde_json::{Value, json};

use super::{
    creation::{self, Owner},
    delete::{self, Dependents},
    readiness::{self, WaitEnd, WaitLimits},
    write::{FilledBody, write_and_record},
};
use crate::{
    api::{client::ApiRequest, clusters::Kubernetes, discovery::ResourceType},
    object::{
        completed_jobs, fetch,
        object_record::{HookRun, ObjectRecord},
        object_ref,
        plan_item::PlanItem,
        precondition::{self, Precondition},
    },
    plan::record,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        hook::{HOOK_STAMP, HookTask, HookTime},
        state::Recorded,
    },
};
use konverge_engine::runtime::{AppliedResource, ApplySink, PlannedResource, StackScope};

/// How many times the end of a Job is decided again because it changed meanwhile.
const TRIES: u32 = 5;

/// Runs the hook, or waits for the run that an earlier apply began.
pub(super) async fn run(
    runtime: &Kubernetes,
    scope: &StackScope,
    target: (&PlanItem, &ResourceType),
    planned: &PlannedResource,
    filled: FilledBody<'_>,
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    let (subject, of) = target;
    let id = &planned.item.id;
    let task = scope
        .hooks
        .get(id)
        .ok_or_else(|| UserError::new(ErrorKind::Internal, "the plan runs a Job that is not a hook"))?;
    let run = Run {
        runtime,
        target,
        planned,
        task,
        sink,
    };
    let last = HookRun::of(planned.item.prior.as_ref());
    let mut found = fetch::get(&subject.cluster, of, &subject.name).await?;
    if let Some(live) = &found {
        run.check_owner(scope, live)?;
    }
    if let Some(live) = found.take_if(|live| run.is_this_run(live, last.as_ref())) {
        let recorded = run.record(&live)?;
        return run.to_its_end(live, recorded).await;
    }
    if let Some((last, _)) = last.filter(|(last, _)| last.succeeded.is_none() && task.is_stamp(&last.stamp)) {
        return Err(run.lost(last).await?);
    }
    if let Some(live) = found {
        sink.fence().await?;
        run.delete(&live).await?;
    }
    let (live, recorded) = write_and_record(runtime, scope, target, planned, filled, None, sink).await?;
    run.to_its_end(live, recorded).await
}

struct Run<'a> {
    runtime: &'a Kubernetes,
    target: (&'a PlanItem, &'a ResourceType),
    planned: &'a PlannedResource,
    task: &'a HookTask,
    sink: &'a dyn ApplySink,
}

impl Run<'_> {
    fn check_owner(&self, scope: &StackScope, live: &Value) -> Result<(), UserError> {
        match creation::owner(live, (&scope.stack, false)) {
            Owner::Us => Ok(()),
            Owner::Other(owner) if scope.was(owner) => Ok(()),
            Owner::Other(_) | Owner::Beside(_) | Owner::Nobody => Err(precondition::another_object(
                self.target.0,
                "this stack does not own it",
            )),
        }
    }

    /// Returns true if a live Job is of the run that is due, and its end was not seen yet.
    fn is_this_run(&self, live: &Value, last: Option<&(HookRun, String)>) -> bool {
        let stamp = object_ref::annotation(live, HOOK_STAMP).unwrap_or_default();
        let is_ending = !live["metadata"]["deletionTimestamp"].is_null();
        let is_seen = last.is_some_and(|(run, uid)| {
            run.stamp == stamp && live["metadata"]["uid"] == uid.as_str() && run.succeeded.is_some()
        });
        self.task.is_stamp(stamp) && !is_ending && !is_seen
    }

    /// The record of a Job that is there.
    fn record(&self, live: &Value) -> Result<Recorded, UserError> {
        let item = &self.planned.item;
        let desired = item.desired.as_ref();
        let desired = desired.ok_or_else(|| UserError::new(ErrorKind::Internal, "a hook without a Job"))?;
        let body = &desired.attributes;
        Ok(record(
            self.runtime,
            item,
            self.target.0,
            desired,
            body,
            Some(live),
            None,
        ))
    }

    /// Stores how the run stands.
    async fn note(
        &self,
        recorded: &mut Recorded,
        live: &Value,
        succeeded: Option<bool>,
    ) -> Result<(), UserError> {
        let stamp = object_ref::annotation(live, HOOK_STAMP).unwrap_or_default();
        let hook = Some(HookRun {
            stamp: stamp.to_owned(),
            succeeded,
        });
        ObjectRecord::update(recorded, |record| record.hook = hook);
        self.sink
            .record_written(&self.planned.item.id, recorded.clone())
            .await
    }

    async fn to_its_end(&self, live: Value, mut recorded: Recorded) -> Result<AppliedResource, UserError> {
        let (subject, of) = self.target;
        self.note(&mut recorded, &live, None).await?;
        let limits = WaitLimits::of_hook(self.runtime);
        let id = &self.planned.item.id;
        let waited =
            readiness::until_ready((self.runtime, &limits), subject, of, live.clone(), self.sink, id);
        let (ended, failure) = match waited.await {
            Ok(WaitEnd::Ready(ended)) => (ended, None),
            Ok(WaitEnd::Waiting(_, _, why)) => (live, Some(self.not_ended(&why))),
            // An interrupted wait says nothing of the Job: the next run waits for it.
            Err(failure) if self.sink.cancelled() => return Err(failure),
            Err(failure) => match self.how_it_ended(&live).await {
                Ok(Some(ended)) => (ended, None),
                Ok(None) => (live, Some(failure)),
                // Its end is not known: the next run waits for it.
                Err(unknown) => {
                    return Err(failure.hint(format!("whether it still runs is not known: {unknown}")));
                }
            },
        };
        self.note(&mut recorded, &ended, Some(failure.is_none())).await?;
        self.tidy_up(&ended).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(AppliedResource {
            id: id.clone(),
            recorded: Some(recorded).filter(|_| self.task.time != HookTime::PreDestroy),
            sensitive: subject.secret_texts(&ended),
            live: Some(ended),
            waiting: None,
        })
    }

    fn not_ended(&self, why: &str) -> UserError {
        UserError::new(
            ErrorKind::Kubernetes,
            format!("{} has not ended: {why}", self.target.0.title()),
        )
    }

    /// How a Job ended that was waited for in vain: the Job if it has completed, `None` if it has failed or is gone. One
    /// that still runs is suspended, so that nothing of it runs on.
    async fn how_it_ended(&self, live: &Value) -> Result<Option<Value>, UserError> {
        let (subject, of) = self.target;
        for _ in 0..TRIES {
            let now = fetch::get(&subject.cluster, of, &subject.name).await?;
            let Some(now) = now.filter(|now| now["metadata"]["uid"] == live["metadata"]["uid"]) else {
                return Ok(None);
            };
            if completed_jobs::has_completed(&now) {
                return Ok(Some(now));
            }
            if completed_jobs::has_failed(&now) || !now["metadata"]["deletionTimestamp"].is_null() {
                return Ok(None);
            }
            self.sink.fence().await?;
            let change = json!({
                "metadata": {"uid": now["metadata"]["uid"], "resourceVersion": now["metadata"]["resourceVersion"]},
                "spec": {"suspend": true},
            });
            match self.patch(&change).await {
                Ok(()) => return Ok(None),
                Err(error) if error.is_code(409) || error.is_code(404) => {}
                Err(error) => return Err(subject.refusal(&error)),
            }
        }
        Err(UserError::new(ErrorKind::Kubernetes, "it changes all the time"))
    }

    async fn patch(&self, change: &Value) -> Result<(), crate::api::error::ApiError> {
        let (subject, of) = self.target;
        let path = of.object(subject.name.namespace(), &subject.name.name);
        let mut request = ApiRequest::get(path).body("application/merge-patch+json", change);
        (request.method, request.bound) = (Method::PATCH, true);
        subject.cluster.api.call(&request).await.map(drop)
    }

    /// Leaves of a Job that has ended what its hook wants: nothing, or the Job with the time to live of the Spec. What
    /// became of the run is recorded already.
    async fn tidy_up(&self, ended: &Value) {
        let desired = self.planned.item.desired.as_ref();
        let ttl = desired.and_then(|desired| desired.attributes.get("spec")?.get("ttlSecondsAfterFinished"));
        let done = match (self.task.keeps_last, ttl) {
            (false, _) => self.delete(ended).await,
            (true, Some(ttl)) if !ttl.is_null() => {
                let change = json!({"metadata": {"uid": ended["metadata"]["uid"]}, "spec": {"ttlSecondsAfterFinished": ttl}});
                let patched = self.patch(&change).await;
                patched.map_err(|error| self.target.0.refusal(&error))
            }
            (true, _) => Ok(()),
        };
        if let Err(failure) = done {
            let message = self
                .runtime
                .secrets
                .mask(&format!("its Job stays as it is: {failure}"));
            self.sink.progress(&self.planned.item.id, &message);
        }
    }

    /// Deletes a Job and waits until it is gone. The pods of one that may still run are gone before it.
    async fn delete(&self, live: &Value) -> Result<(), UserError> {
        let (subject, of) = self.target;
        let has_ended = completed_jobs::has_completed(live) || completed_jobs::has_failed(live);
        let dependents = match has_ended {
            true => Dependents::Go,
            false => Dependents::GoFirst,
        };
        let seen = Precondition::from_object(live);
        let id = &self.planned.item.id;
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return delete::wait_until_gone(self.runtime, subject, of, Some(&seen.uid), self.sink, id).await;
        }
        delete::delete(self.runtime, subject, of, seen, dependents, self.sink, id).await
    }

    /// Records that the Job of a run is lost, and returns the error: it may have done its work or not.
    async fn lost(&self, last: HookRun) -> Result<UserError, UserError> {
        if let Some(mut recorded) = self.planned.item.prior.clone() {
            let hook = Some(HookRun {
                succeeded: Some(false),
                ..last
            });
            ObjectRecord::update(&mut recorded, |record| record.hook = hook);
            self.sink.record_written(&self.planned.item.id, recorded).await?;
        }
        let what = format!(
            "{} is gone, and its end was not seen: an earlier run began it, and somebody deleted it since",
            self.target.0.title()
        );
        Ok(UserError::new(ErrorKind::Kubernetes, what)
            .hint("find out whether its work is done; the next run creates it again"))
    }
}
