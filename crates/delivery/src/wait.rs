//! Waits for a delivery controller, until it is healthy with the revision and the live objects are as planned.

use std::time::Duration;

use tokio::time::Instant;

use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::{
        ResourceId,
        plan::{Action, ResourcePlan},
    },
};
use konverge_engine::runtime::{
    AppliedResource, ApplySink, Item, Needs, PlannedResource, Runtime as _, StackScope,
};

use super::{progress::DeliveryProgress, runtime::DeliveredObjects};

/// The first and the longest pause between two checks of the controller.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// The time for which a controller must fail before the wait ends, because it retries by itself.
const FAILURE_LASTS: Duration = Duration::from_secs(30);

/// A wait with a time limit.
struct WaitLimit {
    until: Instant,
    pause: Duration,
    failed_since: Option<Instant>,
    interrupt: Interrupt,
}

impl WaitLimit {
    fn new(limit: Duration, interrupt: &Interrupt) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: PAUSES.0,
            failed_since: None,
            interrupt: interrupt.clone(),
        }
    }

    /// Pauses until the next check. Returns an error if the time limit has passed, the run was interrupted, or the
    /// controller has failed for long enough.
    async fn wait(
        &mut self,
        failed: bool,
        sink: &dyn ApplySink,
        what: impl Fn() -> UserError,
    ) -> Result<(), UserError> {
        let now = Instant::now();
        // Any other status resets the time, because a controller retries by itself.
        self.failed_since = failed.then(|| self.failed_since.unwrap_or(now));
        let has_failed = self
            .failed_since
            .is_some_and(|since| now - since >= FAILURE_LASTS);
        if has_failed || now >= self.until {
            return Err(what());
        }
        if sink.cancelled() {
            let what = "the run was asked to stop while it waited for the controller";
            return Err(UserError::new(ErrorKind::Interrupted, what)
                .hint("run the command again: it continues to wait"));
        }
        self.interrupt.pause(self.pause.min(self.until - now)).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        Ok(())
    }
}

/// The live objects after a delivery, compared with the plan.
enum Delivered {
    /// All objects are as planned.
    AsPlanned(Vec<AppliedResource>),
    /// The first object that differs from the plan, and a text with the differing paths.
    Otherwise(ResourceId, String),
}

impl DeliveredObjects {
    /// Waits until the controller is healthy with a digest and the objects are as planned. Reports each object.
    pub(super) async fn wait_until_healthy(
        &self,
        scope: &StackScope,
        digest: &str,
        planned: &[PlannedResource],
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        let mut limit = WaitLimit::new(self.kubernetes.ready_timeout(), &self.interrupt);
        loop {
            let objects = self.objects().await?;
            let mut differs = None;
            let (failed, why) = match objects.progress(digest) {
                // The status of the controller is not enough: the live objects must be as planned.
                DeliveryProgress::Healthy => match self.compare(scope, planned).await? {
                    Delivered::AsPlanned(applied) => {
                        for one in applied {
                            sink.record_result(&one.id.clone(), Ok(one)).await?;
                        }
                        return Ok(());
                    }
                    Delivered::Otherwise(id, why) => {
                        differs = Some(id);
                        (false, why)
                    }
                },
                DeliveryProgress::Waiting(why) => (false, why),
                DeliveryProgress::Failed(why) => (true, why),
            };
            if let Some(first) = planned.first() {
                sink.progress(
                    &first.item.id,
                    &format!("waiting for {}: {why}", self.target.title()),
                );
            }
            let stopped = || {
                let what = format!("{} did not deliver `{digest}`: {why}", self.target.title());
                let failure = UserError::new(ErrorKind::Kubernetes, what);
                differs
                    .iter()
                    .fold(failure, UserError::with_resource)
                    .hint("read the status of the controller, and run again: the artifact is pushed, so the run continues with the wait")
                    .hint("a controller looks for new artifacts at its own interval: `apply.ready_timeout` must be longer")
            };
            limit.wait(failed, sink, stopped).await?;
        }
    }

    /// Compares the live objects with the plan, even though the controller reports them as healthy.
    async fn compare(&self, scope: &StackScope, planned: &[PlannedResource]) -> Result<Delivered, UserError> {
        let items = planned.iter().map(|one| Item {
            id: one.item.id.clone(),
            cluster: one.item.cluster.clone(),
            prior: one.recorded.clone().or_else(|| one.item.prior.clone()),
            desired: one.item.desired.clone(),
            needs: Needs::Done(vec![one.item.id.clone()]),
        });
        // A plan with the controller's field manager is empty if the live objects are as planned.
        let results = self.kubernetes.plan(scope, items.collect()).await?;
        let mut applied = Vec::with_capacity(results.len());
        for result in results {
            let found = result?;
            if let Some(why) = difference(&found.public) {
                return Ok(Delivered::Otherwise(found.item.id, why));
            }
            applied.push(AppliedResource {
                id: found.item.id,
                recorded: found.recorded,
                live: found.expected,
                sensitive: found.sensitive,
                waiting: None,
            });
        }
        Ok(Delivered::AsPlanned(applied))
    }

    /// Waits until the controller has deleted the objects that left the artifact.
    pub(super) async fn wait_until_gone(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        let mut limit = WaitLimit::new(self.kubernetes.ready_timeout(), &self.interrupt);
        let mut left = planned;
        while !left.is_empty() {
            let items: Vec<Item> = left.iter().map(|one| one.item.clone()).collect();
            let observed = self.kubernetes.observe(scope, &items).await?;
            let mut stays = Vec::new();
            for (one, seen) in left.into_iter().zip(observed) {
                if seen.live.is_some() {
                    stays.push(one);
                    continue;
                }
                let gone = AppliedResource::unread(one.item.id.clone(), None);
                sink.record_result(&one.item.id, Ok(gone)).await?;
            }
            left = stays;
            let Some(first) = left.first() else { break };
            sink.progress(
                &first.item.id,
                &format!("waiting until {} deletes the object", self.target.title()),
            );
            let stopped = || {
                let what = format!("{} did not delete `{}`", self.target.title(), first.item.id);
                UserError::new(ErrorKind::Kubernetes, what)
                    .with_resource(&first.item.id)
                    .hint("check that the controller prunes, or delete the object yourself, and run the command again")
            };
            limit.wait(false, sink, stopped).await?;
        }
        Ok(())
    }
}

/// Describes the paths that would still change in an object.
fn difference(plan: &ResourcePlan) -> Option<String> {
    match plan.action {
        Action::Unchanged => None,
        Action::Update if plan.changes.is_empty() => None,
        _ => {
            let paths = plan.changes.iter().map(|change| format!("`{}`", change.path));
            let paths: Vec<_> = paths.take(3).collect();
            Some(format!("`{}` is not as planned at {}", plan.id, paths.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use konverge_base::model::state::Recorded;
    use konverge_engine::runtime::RecordFailure;
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    /// A run that only asks whether it must stop.
    struct Asked(CancellationToken);

    #[async_trait]
    impl ApplySink for Asked {
        fn progress(&self, _: &ResourceId, _: &str) {}

        async fn record_written(&self, _: &ResourceId, _: Recorded) -> Result<(), UserError> {
            Ok(())
        }

        async fn record_result(
            &self,
            _: &ResourceId,
            _: Result<AppliedResource, UserError>,
        ) -> Result<(), UserError> {
            Ok(())
        }

        async fn runtime_data(&self, _: &str, _: Value) -> Result<(), RecordFailure> {
            Ok(())
        }

        fn cancelled(&self) -> bool {
            self.0.is_cancelled()
        }

        async fn check_lease(&self) -> Result<(), UserError> {
            Ok(())
        }
    }

    fn over() -> UserError {
        UserError::new(ErrorKind::Kubernetes, "the time is over")
    }

    /// A pause that is not cut short ends the test here.
    async fn soon<T>(wait: impl Future<Output = T>) -> T {
        let guard = Duration::from_secs(60);
        tokio::time::timeout(guard, wait).await.expect("it ends early")
    }

    fn wait_limit(limit: Duration, token: &CancellationToken) -> WaitLimit {
        let limit = WaitLimit::new(limit, &Interrupt::new(token.clone()));
        WaitLimit {
            pause: Duration::from_secs(600),
            ..limit
        }
    }

    #[tokio::test]
    async fn a_pause_ends_at_the_limit() {
        let token = CancellationToken::new();
        let sink = Asked(token.clone());
        let mut limit = wait_limit(Duration::from_millis(20), &token);
        soon(limit.wait(false, &sink, over)).await.unwrap();
        let error = soon(limit.wait(false, &sink, over)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Kubernetes);
    }

    #[tokio::test]
    async fn a_pause_ends_when_the_run_is_asked_to_stop() {
        let token = CancellationToken::new();
        let sink = Asked(token.clone());
        let mut limit = wait_limit(Duration::from_secs(600), &token);
        // The pause is polled first.
        let (waited, ()) =
            soon(async { tokio::join!(biased; limit.wait(false, &sink, over), async { token.cancel() }) })
                .await;
        waited.unwrap();
        let error = soon(limit.wait(false, &sink, over)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Interrupted);
    }
}
