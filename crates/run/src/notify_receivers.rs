//! Opens the receivers of notifications, with the addresses and keys from the environment.

use crate::RunContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::{Interrupt, StopTimeouts},
};
use konverge_config::Notify;
use konverge_notify::{Notification, NotifyDetail, NotifyError, NotifyEvent, NotifyTarget, Sender};

/// Returns a checked receiver with its address and key. Nothing is sent.
///
/// # Errors
/// A variable is not set, or its address is not allowed.
pub fn target(run: &RunContext, notify: &Notify) -> Result<NotifyTarget, NotifyError> {
    let set = |name: &str| {
        let value = run.var(name).map(str::to_owned);
        value.ok_or_else(|| NotifyError::NotSet {
            name: name.to_owned(),
        })
    };
    let target = NotifyTarget {
        kind: notify.kind,
        name: notify.url_env.clone(),
        url: set(&notify.url_env)?,
        key: notify.key_env.as_deref().map(set).transpose()?,
        language: notify.lang,
        mention: notify.mention.clone(),
        from: notify.from.clone(),
        to: notify.to.clone(),
    };
    target.check()?;
    Ok(target)
}

/// Sends a notification to a receiver. An interrupted run does not wait for the delivery.
///
/// # Errors
/// The notification was not delivered.
pub async fn send(
    run: &RunContext,
    sender: &Sender,
    notify: &Notify,
    message: &Notification,
) -> Result<(), UserError> {
    let target = target(run, notify)?;
    let interrupt = Interrupt::with(run.cancel.clone(), StopTimeouts::RECEIVER);
    match interrupt.unless_silent(sender.send(&target, message)).await {
        Ok(sent) => Ok(sent?),
        Err(stopped) => Err(UserError::new(ErrorKind::Interrupted, stopped.to_string())),
    }
}

/// Sends a test message to a receiver, which says that nothing happened.
///
/// # Errors
/// The message was not delivered.
pub async fn send_sample(run: &RunContext, notify: &Notify) -> Result<(), UserError> {
    let message = Notification {
        topic: NotifyEvent::ApplyDone,
        detail: NotifyDetail::Sample,
        repository: run.forge_repository().unwrap_or("konverge").to_owned(),
        stacks: Vec::new(),
        url: run.job_url(),
    };
    send(run, &Sender::new(run.secrets.clone())?, notify, &message).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::run;
    use konverge_config::Config;

    #[test]
    fn a_receiver_whose_address_is_not_set_is_told_by_its_variable() {
        let config = "version: 1\nnotify: [{kind: slack, url_env: CHAT_URL, on: [apply-failed]}]\n";
        let config = Config::parse(config).unwrap();
        let target = |variables: &[(&str, &str)]| target(&run(variables), &config.notify[0]);
        for unset in [&[][..], &[("CHAT_URL", "")]] {
            let error = target(unset).err().unwrap();
            assert!(
                matches!(&error, NotifyError::NotSet { name } if name == "CHAT_URL"),
                "{error}"
            );
        }
        let address = "https://hooks.slack.com/services/T/B/s3cret";
        assert_eq!(target(&[("CHAT_URL", address)]).unwrap().url, address);
        let error = target(&[("CHAT_URL", "http://hooks.slack.com/services/T/B/s3cret")])
            .err()
            .unwrap();
        assert!(!konverge_base::error::chain(&error).contains("s3cret"), "{error}");
    }
}
