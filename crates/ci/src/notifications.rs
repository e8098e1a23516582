//! Sends notifications about applies and drift to the receivers in `notify` of the effective configuration. A failed
//! delivery is only a warning.

use super::{
    job::Job,
    news::{self, News},
};
use konverge_config::Config;
use konverge_notify::{Notification, Sender};
use konverge_run::notify_receivers;

const UNDELIVERED: &str = "a notification was not delivered";

/// Sends notifications to the receivers of the configuration, which is that of the default branch. Without any news,
/// none is sent.
pub(super) async fn send(job: &Job, config: &Config, news: &[News]) {
    if news.is_empty() || config.notify.is_empty() {
        return;
    }
    let sender = match Sender::new(job.run.secrets.clone()) {
        Ok(sender) => sender,
        Err(failure) => return job.run.warn(UNDELIVERED, failure),
    };
    for receiver in &config.notify {
        for news in news::for_receiver(receiver, news) {
            let message = Notification {
                topic: news.topic,
                detail: news.detail(),
                repository: job.runner.info().repository.clone(),
                stacks: news.stacks.into_iter().map(|stack| stack.id).collect(),
                url: Some(job.runner.run_url()),
            };
            let sent = notify_receivers::send(&job.run, &sender, receiver, &message).await;
            if let Err(failure) = sent {
                job.run.warn(UNDELIVERED, failure);
            }
        }
    }
}
