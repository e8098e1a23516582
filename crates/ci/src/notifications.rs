//! Sends notifications of applies and drift, by `notify` of the effective configuration. A failed delivery is
//! a warning.

use super::job::Job;
use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::{Interrupt, StopTimeouts},
    model::{
        StackId,
        apply_result::{ApplyReport, StackResult},
        plan::Plan,
    },
};
use konverge_config::{Config, Notify, NotifyKind};
use konverge_notify::{Kind, Notification, NotifyError, NotifyEvent, NotifyTarget, Sender};
use konverge_run::apply;

const UNDELIVERED: &str = "a notification was not delivered";

/// Sends notifications to the configured receivers.
pub(super) struct Notifications<'a> {
    job: &'a Job,
    told: Vec<Notify>,
}

impl<'a> Notifications<'a> {
    /// With the configuration of the default branch.
    pub(crate) fn new(job: &'a Job, config: &Config) -> Self {
        Self {
            job,
            told: config.notify.clone(),
        }
    }

    /// Notifies about an apply; `unreviewed` are the stacks that were stopped as unreviewed. A run with
    /// nothing to do is not reported.
    pub(crate) async fn applied(&self, report: &ApplyReport, unreviewed: &[StackId]) {
        for (topic, title, stacks) in apply_events(report, unreviewed) {
            self.send(topic, title, stacks).await;
        }
    }

    /// Notifies about an apply without a report. The message of the error may contain values, so only its
    /// kind is sent.
    pub(crate) async fn not_applied(&self, failure: &UserError) {
        let kind = serde_json::to_value(failure.kind).ok();
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
        let title = format!("apply failed before any stack was processed: {kind}");
        self.send(NotifyEvent::ApplyFailed, title, Vec::new()).await;
    }

    /// Notifies about drift, and what was restored.
    pub(crate) async fn notify_drift(&self, plan: &Plan, restored: &[StackId]) {
        let drifted: Vec<_> = plan
            .stacks
            .iter()
            .filter(|stack| stack.summary.changed() > 0)
            .map(|stack| stack.id.clone())
            .collect();
        if !drifted.is_empty() {
            let put_back = match restored.len() {
                0 => String::new(),
                n => format!(" ({n} restored)"),
            };
            let title = format!("differs from what was applied: {}{put_back}", stacks(&drifted));
            self.send(NotifyEvent::Drift, title, drifted).await;
        }
    }

    async fn send(&self, topic: NotifyEvent, title: String, stacks: Vec<StackId>) {
        let those: Vec<_> = self.told.iter().filter(|notify| hears(notify, topic)).collect();
        if those.is_empty() {
            return;
        }
        let sender = match Sender::new(self.job.run.secrets.clone()) {
            Ok(sender) => sender,
            Err(failure) => return self.job.run.warn(UNDELIVERED, failure),
        };
        let message = Notification {
            topic,
            repository: self.job.runner.repository.clone(),
            title,
            stacks,
            url: Some(self.job.runner.run_url()),
        };
        for notify in those {
            let interrupt = Interrupt::with(self.job.run.cancel.clone(), StopTimeouts::RECEIVER);
            let told = match interrupt
                .unless_silent(self.deliver(&sender, notify, &message))
                .await
            {
                Ok(told) => told.map_err(UserError::from),
                Err(stopped) => Err(UserError::new(ErrorKind::Interrupted, stopped.to_string())),
            };
            if let Err(failure) = told {
                self.job.run.warn(UNDELIVERED, failure);
            }
        }
    }

    async fn deliver(
        &self,
        sender: &Sender,
        notify: &Notify,
        message: &Notification,
    ) -> Result<(), NotifyError> {
        let var = |name: &str| self.job.run.var(name).map(str::to_owned);
        let url = var(&notify.url_env).ok_or_else(|| NotifyError::Address {
            name: notify.url_env.clone(),
        })?;
        let target = NotifyTarget {
            kind: match notify.kind {
                NotifyKind::Slack => Kind::Slack,
                NotifyKind::Webhook => Kind::Webhook,
            },
            name: notify.url_env.clone(),
            url,
            key: notify.key_env.as_deref().and_then(var),
        };
        sender.send(&target, message).await
    }
}

/// The events of an apply. Skipped stacks follow from the others and are not named.
fn apply_events(report: &ApplyReport, unreviewed: &[StackId]) -> Vec<(NotifyEvent, String, Vec<StackId>)> {
    let of = |wanted: fn(StackResult) -> bool| -> Vec<_> {
        let those = report.stacks.iter().filter(|stack| wanted(stack.result));
        those.map(|stack| stack.id.clone()).collect()
    };
    let done = of(|result| result == StackResult::Applied);
    let mut failed = of(|result| matches!(result, StackResult::Failed | StackResult::Stopped));
    failed.retain(|stack| !unreviewed.contains(stack));
    let mut news = Vec::new();
    if !unreviewed.is_empty() {
        let title = format!("blocked: unreviewed change: {}", stacks(unreviewed));
        news.push((NotifyEvent::Unreviewed, title, unreviewed.to_vec()));
    }
    if !failed.is_empty() {
        let title = format!("the apply failed: {}", stacks(&failed));
        news.push((NotifyEvent::ApplyFailed, title, failed));
    } else if !done.is_empty() && (apply::ended_well(report) || apply::only_waits(report)) {
        let title = format!("applied: {}", stacks(&done));
        news.push((NotifyEvent::ApplyDone, title, done));
    }
    news
}

/// An empty list means all events.
fn hears(notify: &Notify, topic: NotifyEvent) -> bool {
    notify.on.is_empty() || notify.on.contains(&topic)
}

fn stacks(those: &[StackId]) -> String {
    match those {
        [one] => one.to_string(),
        many => format!("{} stacks", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{Digest, RepoPath, apply_result::StackOutcome, authorization::Authorization};

    fn told(results: &[(&str, StackResult)], unreviewed: &[&str]) -> Vec<(NotifyEvent, Vec<String>)> {
        let stacks = results.iter().map(|(id, result)| StackOutcome {
            stack: RepoPath::root(),
            id: id.parse().unwrap(),
            result: *result,
            digest: Digest::of_bytes(b""),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::new(),
            error: None,
        });
        let report = ApplyReport {
            version: 1,
            stacks: stacks.collect(),
        };
        let unreviewed: Vec<_> = unreviewed.iter().map(|id| id.parse().unwrap()).collect();
        apply_events(&report, &unreviewed)
            .into_iter()
            .map(|(topic, _, stacks)| (topic, stacks.iter().map(StackId::to_string).collect()))
            .collect()
    }

    fn one(topic: NotifyEvent, stack: &str) -> (NotifyEvent, Vec<String>) {
        (topic, vec![stack.to_owned()])
    }

    #[test]
    fn each_topic_names_its_own_stacks() {
        use StackResult::{Applied, Failed, HeldBack, Stopped, Unchanged, Waiting};
        assert_eq!(told(&[("a/dev", Unchanged)], &[]), []);
        let done = [("a/dev", Applied), ("b/dev", Unchanged)];
        assert_eq!(told(&done, &[]), [one(NotifyEvent::ApplyDone, "a/dev")]);
        let waits = [("a/dev", Applied), ("b/dev", Waiting), ("c/dev", HeldBack)];
        assert_eq!(told(&waits, &[]), [one(NotifyEvent::ApplyDone, "a/dev")]);
        let failed = [("a/dev", Applied), ("b/dev", Failed), ("c/dev", HeldBack)];
        assert_eq!(told(&failed, &[]), [one(NotifyEvent::ApplyFailed, "b/dev")]);
        let stopped = [("a/dev", Stopped), ("b/dev", Stopped), ("c/dev", Applied)];
        assert_eq!(
            told(&stopped, &["a/dev"]),
            [
                one(NotifyEvent::Unreviewed, "a/dev"),
                one(NotifyEvent::ApplyFailed, "b/dev")
            ]
        );
        assert_eq!(
            told(&[("a/dev", Stopped)], &["a/dev"]),
            [one(NotifyEvent::Unreviewed, "a/dev")]
        );
    }
}
