//! Runs the Job of a hook to its end, once for each stamp.
//!
//! The record of the run is stored before its Job is created, and again with the UID before the Job is waited
//! for. After a kill, the next apply finds the Job by its stamp and waits for it. If there is no such Job,
//! the hook may have run, so the apply fails once with that message. A hook runs again only if the end of its
//! last run was observed, or its loss was reported.

use serde_json::{Value, json};

use super::{
    apply_task::ApplyTask,
    creation::{self, Owner},
    delete::{self, Dependents},
    readiness::{self, WaitLimits},
    write::{FilledBody, write_and_record},
};
use crate::{
    api::client::ApiRequest,
    object::{
        completed_jobs, fetch,
        object_record::{HookRun, ObjectRecord},
        object_ref,
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
use konverge_engine::runtime::AppliedResource;

/// Maximum number of attempts to suspend a Job that changes in the meantime.
const TRIES: u32 = 5;

/// Runs the hook, or waits for the run that an earlier apply started.
pub(super) async fn run(task: ApplyTask<'_>, filled: FilledBody<'_>) -> Result<AppliedResource, UserError> {
    let no_hook = || UserError::new(ErrorKind::Internal, "the plan runs a Job that is not a hook");
    let hook = task.scope.hooks.get(task.id()).ok_or_else(no_hook)?;
    if hook.is_for_later() {
        let recorded = task.planned.recorded.clone();
        return Ok(AppliedResource::unread(task.id().clone(), recorded));
    }
    let run = Run {
        task,
        hook,
        last: HookRun::of(task.planned.item.prior.as_ref()),
    };
    let mut found = fetch::get(&task.subject.cluster, task.of, &task.subject.name).await?;
    if let Some(live) = &found {
        run.check_owner(live)?;
    }
    // An earlier apply created this Job and was killed before the Job ended, so this apply waits for it.
    if let Some(live) = found.take_if(|live| run.is_this_run(live)) {
        let recorded = run.record(Some(&live))?;
        return run.to_its_end(live, recorded).await;
    }
    // The earlier apply recorded the run, but its Job does not exist: the hook may have done its work. It
    // must not run a second time unnoticed.
    if let Some((last, _)) = &run.last
        && last.succeeded.is_none()
        && hook.is_stamp(&last.stamp)
    {
        return Err(run.lost(last).await?);
    }
    // The Job of an earlier run has the same name. A Job cannot be changed, so it is deleted first.
    if let Some(live) = found {
        task.sink.check_lease().await?;
        run.delete(&live).await?;
    }
    // Recorded before the Job is created: after a kill from here on, a missing Job does not prove that the
    // hook did not run.
    run.note(&mut run.record(None)?, hook.stamp(), None).await?;
    match write_and_record(task, filled, None).await {
        Ok((live, recorded)) => run.to_its_end(live, recorded).await,
        Err(failure) => {
            run.withdraw().await;
            Err(failure)
        }
    }
}

struct Run<'a> {
    task: ApplyTask<'a>,
    hook: &'a HookTask,
    /// The last run, and the UID of its Job.
    last: Option<(HookRun, String)>,
}

impl Run<'_> {
    fn check_owner(&self, live: &Value) -> Result<(), UserError> {
        let scope = self.task.scope;
        match creation::owner(live, &scope.stack, false) {
            Owner::Us => Ok(()),
            Owner::Other(owner) if scope.was(owner) => Ok(()),
            Owner::Other(_) | Owner::Beside | Owner::Nobody => Err(precondition::another_object(
                self.task.subject,
                "this stack does not own it",
            )),
        }
    }

    /// Returns true if a live Job is that of the due run, and its end was not observed yet.
    fn is_this_run(&self, live: &Value) -> bool {
        let stamp = object_ref::annotation(live, HOOK_STAMP).unwrap_or_default();
        let is_ending = !live["metadata"]["deletionTimestamp"].is_null();
        let is_seen = self.last.as_ref().is_some_and(|(run, uid)| {
            run.stamp == stamp && live["metadata"]["uid"] == uid.as_str() && run.succeeded.is_some()
        });
        self.hook.is_stamp(stamp) && !is_ending && !is_seen
    }

    /// Returns the record of the run, with the Job if it exists.
    fn record(&self, live: Option<&Value>) -> Result<Recorded, UserError> {
        let item = &self.task.planned.item;
        let desired = item.desired.as_ref();
        let desired = desired.ok_or_else(|| UserError::new(ErrorKind::Internal, "a hook without a Job"))?;
        let body = &desired.attributes;
        let ApplyTask { runtime, subject, .. } = self.task;
        Ok(record(runtime, item, subject, desired, body, live, None))
    }

    /// Stores the state of the run in the journal before it returns.
    async fn note(
        &self,
        recorded: &mut Recorded,
        stamp: String,
        succeeded: Option<bool>,
    ) -> Result<(), UserError> {
        let hook = Some(HookRun { stamp, succeeded });
        ObjectRecord::update(recorded, |record| record.hook = hook);
        self.task.sink.record_run(self.task.id(), recorded.clone()).await
    }

    /// Records that the run did not start, if its Job does not exist after the creation failed. Otherwise the
    /// next apply finds the Job, or reports it as lost.
    async fn withdraw(&self) {
        let ApplyTask { subject, of, .. } = self.task;
        let found = fetch::get(&subject.cluster, of, &subject.name).await;
        if let (Ok(None), Ok(mut recorded)) = (found, self.record(None)) {
            // The user sees the failure of the creation. If this record is lost, the next apply only fails
            // once more.
            let _ = self.note(&mut recorded, self.hook.stamp(), Some(false)).await;
        }
    }

    async fn to_its_end(&self, live: Value, mut recorded: Recorded) -> Result<AppliedResource, UserError> {
        let stamp = object_ref::annotation(&live, HOOK_STAMP).unwrap_or_default();
        let stamp = stamp.to_owned();
        // The UID of the Job is recorded, so that after a kill the next apply can recognize this Job when it
        // has finished.
        self.note(&mut recorded, stamp.clone(), None).await?;
        let limits = WaitLimits::of_hook(self.task.runtime);
        let waited = readiness::until_ready(self.task, &limits, live.clone());
        let (ended, failure) = match waited.await {
            Ok((ended, None)) => (ended, None),
            Ok((_, Some((_, why)))) => {
                let what = format!("{} has not ended: {why}", self.task.subject.title());
                (live, Some(UserError::new(ErrorKind::Kubernetes, what)))
            }
            // An interrupted wait shows nothing about the Job, so the next apply waits for it.
            Err(failure) if self.task.sink.cancelled() => return Err(failure),
            Err(failure) => match self.how_it_ended(&live).await {
                Ok(Some(ended)) => (ended, None),
                Ok(None) => (live, Some(failure)),
                // It is unknown whether the Job has ended, so nothing is recorded, and the next apply waits
                // for it.
                Err(unknown) => {
                    return Err(failure.hint(format!("it is unknown whether the Job still runs: {unknown}")));
                }
            },
        };
        self.note(&mut recorded, stamp, Some(failure.is_none())).await?;
        self.tidy_up(&ended).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let recorded = Some(recorded).filter(|_| self.hook.time != HookTime::PreDestroy);
        Ok(self.task.applied(recorded, Some(ended), None))
    }

    /// Returns the Job if it has completed after all; `None` if it failed, is gone, or was still running. A
    /// running Job is suspended, so that none of its pods continues.
    async fn how_it_ended(&self, live: &Value) -> Result<Option<Value>, UserError> {
        let ApplyTask { subject, of, .. } = self.task;
        // The Job may complete between the read and the write, so its run counts as failed only once it is
        // suspended.
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
            self.task.sink.check_lease().await?;
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
        let what = format!("the Job changed during each of {TRIES} attempts to suspend it");
        Err(UserError::new(ErrorKind::Kubernetes, what))
    }

    async fn patch(&self, change: &Value) -> Result<(), crate::api::error::ApiError> {
        let ApplyTask { subject, of, .. } = self.task;
        let request = ApiRequest::patch(subject.name.path(of), "application/merge-patch+json", change);
        subject.cluster.api.call(&request.bound()).await.map(drop)
    }

    /// Deletes an ended Job, or sets the time to live of the Spec, as the hook wants. The result of the run
    /// is already recorded.
    async fn tidy_up(&self, ended: &Value) {
        let desired = self.task.planned.item.desired.as_ref();
        let ttl = desired.and_then(|desired| desired.attributes.get("spec")?.get("ttlSecondsAfterFinished"));
        let done = match (self.hook.keeps_last, ttl) {
            (false, _) => self.delete(ended).await,
            (true, Some(ttl)) if !ttl.is_null() => {
                let change = json!({"metadata": {"uid": ended["metadata"]["uid"]}, "spec": {"ttlSecondsAfterFinished": ttl}});
                let patched = self.patch(&change).await;
                patched.map_err(|error| self.task.subject.refusal(&error))
            }
            (true, _) => Ok(()),
        };
        if let Err(failure) = done {
            let secrets = &self.task.runtime.secrets;
            let message = secrets.mask(&format!("its Job stays as it is: {failure}"));
            self.task.sink.progress(self.task.id(), &message);
        }
    }

    /// Deletes a Job and waits until it is gone. If the Job may still run, its pods are deleted first.
    async fn delete(&self, live: &Value) -> Result<(), UserError> {
        let has_ended = completed_jobs::has_completed(live) || completed_jobs::has_failed(live);
        let dependents = if has_ended {
            Dependents::Go
        } else {
            Dependents::GoFirst
        };
        let seen = Precondition::from_object(live);
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return delete::wait_until_gone(self.task, Some(&seen.uid)).await;
        }
        delete::delete(self.task, seen, dependents).await
    }

    /// Records that the Job of a run is lost, and returns the error that the Job may have done its work.
    async fn lost(&self, last: &HookRun) -> Result<UserError, UserError> {
        if let Some(mut recorded) = self.task.planned.item.prior.clone() {
            let hook = Some(HookRun {
                succeeded: Some(false),
                ..last.clone()
            });
            ObjectRecord::update(&mut recorded, |record| record.hook = hook);
            self.task.sink.record_run(self.task.id(), recorded).await?;
        }
        let what = format!(
            "{} may have run: an earlier apply started it, but it is gone and its result is unknown",
            self.task.subject.title()
        );
        Ok(UserError::new(ErrorKind::Kubernetes, what)
            .hint("find out whether the work of the hook is done; the next apply runs the hook again"))
    }
}
