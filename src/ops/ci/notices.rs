//! Who is told of an apply or of drift, by `notify` of the configuration in force. What is not delivered is a warning.

use super::Job;
use crate::{
    config::{Config, Notify, NotifyKind},
    error::Failure,
    model::{
        StackId,
        outcome::{ApplyReport, StackOutcome, StackResult},
        plan::Plan,
    },
    notify::{Kind, Message, NotifyError, Sender, Target, Topic},
    ops::apply,
};

/// Sends what happened to those who are to be told.
pub(super) struct Notices<'a> {
    job: &'a Job,
    told: Vec<Notify>,
}

impl<'a> Notices<'a> {
    /// Under the protected branch's configuration.
    pub fn of(job: &'a Job, config: &Config) -> Self {
        Self {
            job,
            told: config.notify.clone(),
        }
    }

    /// What an apply came to; `unreviewed` are the stacks that were stopped because nobody reviewed a part of them.
    /// A run that had nothing to do is not worth a word.
    pub async fn applied(&self, report: &ApplyReport, unreviewed: &[StackId]) {
        let of = |wanted: fn(&StackOutcome) -> bool| -> Vec<_> {
            let those = report.stacks.iter().filter(|stack| wanted(stack));
            those.map(|stack| stack.id.clone()).collect()
        };
        let done = of(|stack| stack.result == StackResult::Applied);
        let mut failed = of(|stack| matches!(stack.result, StackResult::Failed | StackResult::Stopped));
        failed.retain(|stack| !unreviewed.contains(stack));
        if !unreviewed.is_empty() {
            let title = format!(
                "a change that nobody reviewed was stopped: {}",
                stacks(unreviewed)
            );
            self.send(Topic::Unreviewed, title, unreviewed.to_vec()).await;
        }
        if !failed.is_empty() {
            let title = format!("the apply failed: {}", stacks(&failed));
            self.send(Topic::ApplyFailed, title, failed).await;
        } else if !done.is_empty() && apply::ended_well(report) {
            let title = format!("applied: {}", stacks(&done));
            self.send(Topic::ApplyDone, title, done).await;
        }
    }

    /// An apply that came to no report. The failure's own words may hold values, so its kind stands for it.
    pub async fn not_applied(&self, failure: &Failure) {
        let kind = serde_json::to_value(failure.kind).ok();
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
        let title = format!("the apply failed as a whole: {kind}");
        self.send(Topic::ApplyFailed, title, Vec::new()).await;
    }

    /// What a look for drift found.
    pub async fn looked(&self, plan: &Plan) {
        let drifted: Vec<_> = plan
            .stacks
            .iter()
            .filter(|stack| stack.summary.changed() > 0)
            .map(|stack| stack.id.clone())
            .collect();
        if !drifted.is_empty() {
            let title = format!("differs from what was applied: {}", stacks(&drifted));
            self.send(Topic::Drift, title, drifted).await;
        }
    }

    async fn send(&self, topic: Topic, title: String, stacks: Vec<StackId>) {
        let those: Vec<_> = self.told.iter().filter(|notify| hears(notify, topic)).collect();
        if those.is_empty() {
            return;
        }
        let sender = match Sender::new(self.job.run.secrets.clone()) {
            Ok(sender) => sender,
            Err(failure) => return self.warn(&failure),
        };
        let message = Message {
            topic,
            repository: self.job.runner.repository.clone(),
            title,
            stacks,
            url: Some(self.job.runner.run_url()),
        };
        for notify in those {
            if let Err(error) = self.deliver(&sender, notify, &message).await {
                self.warn(&error.into());
            }
        }
    }

    async fn deliver(&self, sender: &Sender, notify: &Notify, message: &Message) -> Result<(), NotifyError> {
        let var = |name: &str| self.job.run.var(name).map(str::to_owned);
        let url = var(&notify.url_env).ok_or_else(|| NotifyError::Address {
            name: notify.url_env.clone(),
        })?;
        let target = Target {
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

    fn warn(&self, failure: &Failure) {
        let hints: String = failure
            .hints
            .iter()
            .map(|hint| format!("\n  hint: {hint}"))
            .collect();
        self.job.run.notes.note(&format!(
            "warning: a notification was not delivered: {}{hints}",
            failure.message
        ));
    }
}

/// Nothing named is everything.
fn hears(notify: &Notify, topic: Topic) -> bool {
    notify.on.is_empty() || notify.on.iter().any(|word| Topic::of(word) == Some(topic))
}

fn stacks(those: &[StackId]) -> String {
    match those {
        [one] => one.to_string(),
        many => format!("{} stacks", many.len()),
    }
}
