//! Sends notifications about applies and drift to the receivers in `notify` of the effective configuration. A failed
//! delivery is only a warning.

use super::{
    job::Job,
    news::{self, News},
};
use konverge_config::{Config, Notify};
use konverge_notify::{Notification, Sender};
use konverge_run::notify_receivers;

const UNDELIVERED: &str = "a notification was not delivered";

/// Sends notifications to the configured receivers.
pub(super) struct Notifications<'a> {
    job: &'a Job,
    receivers: Vec<Notify>,
}

impl<'a> Notifications<'a> {
    /// Creates the notifications from the configuration of the default branch.
    pub(crate) fn new(job: &'a Job, config: &Config) -> Self {
        Self {
            job,
            receivers: config.notify.clone(),
        }
    }

    /// Sends notifications. Without any news, none is sent.
    pub(crate) async fn send(&self, news: &[News]) {
        if news.is_empty() || self.receivers.is_empty() {
            return;
        }
        let sender = match Sender::new(self.job.run.secrets.clone()) {
            Ok(sender) => sender,
            Err(failure) => return self.job.run.warn(UNDELIVERED, failure),
        };
        for receiver in &self.receivers {
            for news in news::for_receiver(receiver, news) {
                let message = Notification {
                    topic: news.topic,
                    detail: news.detail(),
                    repository: self.job.runner.info().repository.clone(),
                    stacks: news.stacks.into_iter().map(|stack| stack.id).collect(),
                    url: Some(self.job.runner.run_url()),
                };
                let sent = notify_receivers::send(&self.job.run, &sender, receiver, &message).await;
                if let Err(failure) = sent {
                    self.job.run.warn(UNDELIVERED, failure);
                }
            }
        }
    }
}
