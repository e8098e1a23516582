//! Waits until a written object is ready, with the watch of its collection.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::super::{
    api::{clusters::Kubernetes, discovery::ResourceType, watches::WatchedObject},
    health::{self, Health, HealthRules, Related, WaitPolicy},
    object::{completed_jobs, fetch, plan_item::PlanItem, related_fetch},
};
use super::{apply_task::ApplyTask, early_failure::EarlyFailure};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::apply_result::Waiting,
    spans,
};

/// Time without an event after which the object is read again, because the watch may not be permitted or may
/// have lost an event.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Time between two reads of the related objects of an unready object.
const LOOK_AROUND: Duration = Duration::from_secs(3);

/// Returns true if the watch event is older than Konverge's write. The watch was opened before the write, so
/// such events are meaningless. Resource versions are growing numbers (KEP-5504, and in practice with every
/// etcd).
fn is_older(seen: &Value, than: &Value) -> bool {
    let version = |object: &Value| {
        object["metadata"]["resourceVersion"]
            .as_str()?
            .parse::<u64>()
            .ok()
    };
    let generation = |object: &Value| object["metadata"]["generation"].as_u64();
    match (version(seen), version(than)) {
        (Some(seen), Some(than)) => seen < than,
        _ => generation(seen) < generation(than),
    }
}

/// Returns true if the object needs no wait.
pub(super) async fn is_settled(task: ApplyTask<'_>, object: &Value) -> bool {
    let rules = task.subject.health_rules(task.runtime);
    let verdict = health::assess(object, &related_fetch::known_related(task.of), &rules).await;
    verdict.health == Health::Ready || matches!(verdict.weight, WaitPolicy::Advisory | WaitPolicy::Indirect)
}

/// Opens the watch for an object that is about to be written, if the object may have to be waited for.
pub(super) async fn prepare(task: ApplyTask<'_>, body: &Value) {
    let ApplyTask { subject, of, .. } = task;
    let (watches, path) = (&subject.cluster.watches, of.collection(subject.name.namespace()));
    if task.runtime.options.wait && !watches.is_open(&path) && !is_settled(task, body).await {
        watches.wait_until_open(path).await;
    }
}

/// The result of a wait: the last version of the object. If it is not ready, and waiting longer does not help, also
/// the reason and the object's own message.
type WaitEnd = (Value, Option<(Waiting, String)>);

/// The limits and rules of a wait.
pub(crate) struct WaitLimits {
    timeout: Duration,
    rules: HealthRules,
    /// True for a Job that must run to its end, so that a suspended one is not enough.
    to_its_end: bool,
}

impl WaitLimits {
    /// Returns the limits for an object of the stack.
    pub(crate) fn of_object(runtime: &Kubernetes, subject: &PlanItem) -> Self {
        Self {
            timeout: runtime.options.ready_timeout,
            rules: subject.health_rules(runtime),
            to_its_end: false,
        }
    }

    /// Returns the limits for the Job of a hook. Rules of users do not apply to its end.
    pub(crate) fn of_hook(runtime: &Kubernetes) -> Self {
        Self {
            timeout: runtime.options.hook_timeout,
            rules: HealthRules::default(),
            to_its_end: true,
        }
    }
}

/// Waits until an object that was just written is ready.
///
/// # Errors
/// The object failed permanently or was deleted, or the timeout passed.
pub(super) async fn until_ready(
    task: ApplyTask<'_>,
    limits: &WaitLimits,
    written: Value,
) -> Result<WaitEnd, UserError> {
    watch_until_ready(task, limits, written)
        .instrument(spans::wait("readiness"))
        .await
}

async fn watch_until_ready(
    task: ApplyTask<'_>,
    limits: &WaitLimits,
    written: Value,
) -> Result<WaitEnd, UserError> {
    let ApplyTask {
        subject, of, sink, ..
    } = task;
    let deadline = Instant::now() + limits.timeout;
    let version = written["metadata"]["resourceVersion"].as_str();
    let feed = subject
        .cluster
        .watches
        .open(of.collection(subject.name.namespace()), version);
    let mut events = feed.seen.subscribe();
    let uid = written["metadata"]["uid"].clone();
    let mut object = written;
    let mut look = false;
    let mut looked = Instant::now();
    let mut related = related_fetch::known_related(of);
    let mut looked_around = Instant::now();
    let rules = &limits.rules;
    let mut early_failure = EarlyFailure::new(task.runtime.options.fail_early_after);
    loop {
        // Pods and events show why an object is not ready. They are not watched, so they are read from time
        // to time.
        if looked_around.elapsed() >= LOOK_AROUND {
            related = related_fetch::fetch_related(&subject.cluster, of, &object).await;
            looked_around = Instant::now();
        }
        let verdict = health::assess(&object, &related, rules).await;
        if let WaitPolicy::Waiting(waiting) = verdict.weight
            && !ends_before(waiting, deadline)
        {
            return Ok((object, Some((waiting, verdict.message))));
        }
        match verdict.health {
            Health::Ready => return Ok((object, None)),
            _ if matches!(verdict.weight, WaitPolicy::Waiting(_)) => early_failure.reset(),
            Health::Suspended if limits.to_its_end => early_failure.reset(),
            Health::Suspended => return Ok((object, None)),
            _ if matches!(verdict.weight, WaitPolicy::Advisory | WaitPolicy::Indirect) => {
                return Ok((object, None));
            }
            Health::Failed => {
                if early_failure.is_due(verdict.weight, Instant::now()) {
                    let why = last_words(task, limits, &object, &related, verdict.message).await;
                    return Err(failed_error(subject, &why, verdict.weight));
                }
            }
            Health::Progressing | Health::Unknown => early_failure.reset(),
        }
        if !verdict.message.is_empty() {
            sink.progress(task.id(), &verdict.message);
        }
        let last_message = verdict.message;
        if Instant::now() >= deadline {
            let why = last_words(task, limits, &object, &related, last_message).await;
            return Err(timeout_error(subject, &why, limits));
        }
        if sink.cancelled() {
            return Err(interrupted_error(subject, &last_message));
        }
        let latest = feed
            .latest
            .lock()
            .expect("no panic while the lock is held")
            .get(&subject.name.name)
            .cloned();
        if let Some(WatchedObject { object: latest, gone }) = latest {
            // After a deletion, only a read shows if the object exists again.
            look |= gone;
            // The watch serves all objects of the collection. Events from before Konverge's write, or of a
            // recreated object, are ignored.
            if latest["metadata"]["uid"] == uid && latest != object && !is_older(&latest, &object) {
                object = with_type(latest, of);
                if !gone {
                    continue;
                }
            }
        }
        if look {
            (look, looked) = (false, Instant::now());
            match fetch::get(&subject.cluster, of, &subject.name).await? {
                Some(found) => {
                    // The object exists again. The event of its deletion is replaced, because it would lead
                    // to this read again.
                    object = found;
                    feed.latest
                        .lock()
                        .expect("no panic while the lock is held")
                        .remove(&subject.name.name);
                    continue;
                }
                // A completed Job may already be deleted by its time to live.
                None if completed_jobs::has_completed(&object) => return Ok((object, None)),
                None => return Err(deleted_error(subject, &object)),
            }
        }
        let around = LOOK_AROUND.saturating_sub(looked_around.elapsed());
        let pause = LOOK_AGAIN
            .saturating_sub(looked.elapsed())
            .min(around)
            .min(deadline.saturating_duration_since(Instant::now()));
        tokio::select! {
            _ = events.changed() => looked = Instant::now(),
            () = subject.cluster.api.interrupt.pause(pause) => {}
        }
        look |= looked.elapsed() >= LOOK_AGAIN;
    }
}

/// Returns true if the reason for which an object waits ends by itself before the deadline.
fn ends_before(waiting: Waiting, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let until = waiting.until.map(|until| until.duration_since(Timestamp::now()));
    until.is_some_and(|until| {
        !left.is_zero() && until <= SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX)
    })
}

fn failed_error(subject: &PlanItem, why: &str, policy: WaitPolicy) -> UserError {
    let what = format!("{} failed: {why}", subject.title());
    let failure = UserError::new(ErrorKind::Kubernetes, what);
    match policy {
        WaitPolicy::Final => failure,
        _ => failure.hint(
            "fix the cause, because waiting does not help; `apply.fail_early_after` in `konverge.yaml` sets how long such a failure may last",
        ),
    }
}

fn timeout_error(subject: &PlanItem, why: &str, limits: &WaitLimits) -> UserError {
    let seconds = limits.timeout.as_secs();
    if limits.to_its_end {
        let what = format!("{} has not ended after {seconds} s: {why}", subject.title());
        return UserError::new(ErrorKind::Kubernetes, what)
            .hint("set a longer `apply.hooks.timeout` in `konverge.yaml` if the hook needs more time");
    }
    let what = format!("{} is not ready after {seconds} s: {why}", subject.title());
    UserError::new(ErrorKind::Kubernetes, what).hint(
        "the object was applied and recorded; set a longer `apply.ready_timeout` in `konverge.yaml` if it needs more time",
    )
}

fn interrupted_error(subject: &PlanItem, last_message: &str) -> UserError {
    let title = subject.title();
    let what = format!("{title} was applied, but its readiness was not waited for: {last_message}");
    UserError::new(ErrorKind::Interrupted, what)
}

/// Describes a failed wait, with the evidence that a person would look for next.
async fn last_words(
    task: ApplyTask<'_>,
    limits: &WaitLimits,
    object: &Value,
    earlier: &Related,
    known: String,
) -> String {
    let cluster = &task.subject.cluster;
    let mut around = related_fetch::fetch_related(cluster, task.of, object).await;
    around.remember(earlier);
    let verdict = health::assess(object, &around, &limits.rules).await;
    let words = match verdict.health {
        Health::Ready | Health::Suspended => known,
        _ => verdict.message,
    };
    words + &related_fetch::evidence(cluster, object, &around).await
}

fn deleted_error(subject: &PlanItem, object: &Value) -> UserError {
    let title = subject.title();
    let what = format!("{title} was deleted during the wait for its readiness");
    let failure = UserError::new(ErrorKind::Kubernetes, what);
    if object["spec"]["ttlSecondsAfterFinished"].is_null() {
        failure
    } else {
        failure.hint("set a longer `ttlSecondsAfterFinished` to see its result")
    }
}

/// Adds the type to an object from a watch, which may lack it.
fn with_type(mut object: Value, of: &ResourceType) -> Value {
    if object["kind"].is_null() {
        object["kind"] = Value::String(of.kind.clone());
        object["apiVersion"] = Value::String(of.api_version());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_the_write_is_older() {
        let sight = |version: &str, generation: u64| serde_json::json!({"metadata": {"resourceVersion": version, "generation": generation}});
        assert!(is_older(&sight("99", 1), &sight("100", 2)));
        assert!(!is_older(&sight("101", 2), &sight("100", 2)));
        // For a server with other versions the generation decides.
        assert!(is_older(&sight("b", 1), &sight("a", 2)));
        assert!(!is_older(&sight("b", 2), &sight("a", 2)));
    }
}
