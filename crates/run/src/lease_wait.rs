//! Waits for a stack's lease that another run holds: shows the holder, and asks the forge whether the holder has ended.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;

use crate::{RunContext, forge};
use konverge_base::{
    error::chain,
    model::{StackId, note::Note},
    sync::lock,
};
use konverge_forge::{Forge, ForgeError, ForgeKind};
use konverge_state::{Holder, LeaseWatch, WaitVerdict};

/// The interval of the message about the holder. The first message is printed at once.
const NOTE_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of the queries to the forge. The first one is sent at once. Most responses are *not modified*, which do
/// not count against the rate limit.
const QUERY_INTERVAL: Duration = Duration::from_secs(15);
/// The deadline for a response of the forge. It is short, because the lease is not read while this run waits for it.
const FORGE_DEADLINE: Duration = Duration::from_secs(5);

/// Watches the holder of one stack's lease.
pub struct HolderWatch {
    run: RunContext,
    stack: StackId,
    forge: OnceLock<Option<Arc<dyn Forge>>>,
    last_actions: Mutex<WaitTimes>,
}

/// The times of the last message and the last query, counted from the start of the wait.
#[derive(Default)]
struct WaitTimes {
    said: Option<Duration>,
    asked: Option<Duration>,
    unanswered: bool,
}

impl HolderWatch {
    /// Creates the watch for a run that waits for a stack's lease.
    pub fn new(run: &RunContext, stack: &StackId) -> Self {
        Self {
            run: run.clone(),
            stack: stack.clone(),
            forge: OnceLock::new(),
            last_actions: Mutex::default(),
        }
    }

    fn note(&self, text: &str) {
        self.run.notes.say(Note::info(text).of(&self.stack));
    }

    /// Returns the kind of the forge if the forge says that the holder's run has ended. If the forge does not know, the
    /// holder keeps the lease.
    async fn says_over(&self, holder: &Holder) -> Option<ForgeKind> {
        let forge = self
            .forge
            .get_or_init(|| forge::connect_to_runs(&self.run, FORGE_DEADLINE).ok().flatten());
        let forge = forge.as_ref()?;
        match forge.is_over(&holder.writer.run).await {
            Ok(over) => (over == Some(true)).then(|| forge.kind()),
            Err(error) => {
                if !std::mem::replace(&mut lock(&self.last_actions).unanswered, true) {
                    self.note(&unanswered(forge.kind(), &error, holder));
                }
                None
            }
        }
    }
}

fn unanswered(forge: ForgeKind, error: &ForgeError, holder: &Holder) -> String {
    let may = match error {
        ForgeError::Forbidden { permission, .. } | ForgeError::NotFound { permission, .. } => {
            format!(" (`permissions: {permission}` allows the request)")
        }
        _ => String::new(),
    };
    format!(
        "{forge} does not say whether the run that holds the lease is over: {}{may}; its lease expires {} s after its last renewal",
        chain(error),
        holder.term.as_secs()
    )
}

/// Returns true if an action is due again, and then sets its last time to `now`.
fn is_due(last: &mut Option<Duration>, now: Duration, every: Duration) -> bool {
    let due = last.is_none_or(|last| now.saturating_sub(last) >= every);
    if due {
        *last = Some(now);
    }
    due
}

#[async_trait]
impl LeaseWatch for HolderWatch {
    async fn waiting(&self, holder: &Holder, waited: Duration) -> WaitVerdict {
        if self.run.cancel.is_cancelled() {
            return WaitVerdict::GiveUp;
        }
        // The lock is released before the request to the forge, which may take seconds.
        let (say, ask) = {
            let mut times = lock(&self.last_actions);
            (
                is_due(&mut times.said, waited, NOTE_INTERVAL),
                is_due(&mut times.asked, waited, QUERY_INTERVAL),
            )
        };
        if say {
            self.note(&format!(
                "waiting for {}, lease {}, {} s so far: {}; {}",
                holder.writer,
                holder.id,
                waited.as_secs(),
                holder.renewal_text(),
                holder.way_out(&self.stack)
            ));
        }
        if ask && let Some(forge) = self.says_over(holder).await {
            self.note(&format!(
                "{forge} reports that {} is over: taking over lease {}",
                holder.writer.run, holder.id
            ));
            return WaitVerdict::HolderIsOver;
        }
        WaitVerdict::KeepWaiting
    }

    async fn stopped(&self) {
        self.run.cancel.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, noted_run};
    use konverge_state::DocumentWriter;

    fn holder() -> Holder {
        Holder {
            id: "lease-1".to_owned(),
            epoch: 1,
            writer: DocumentWriter {
                run: "https://github.com/acme/konfig/actions/runs/7".to_owned(),
                actor: "ada".to_owned(),
            },
            since: jiff::Timestamp::UNIX_EPOCH,
            term: Duration::from_secs(90),
            quiet: Duration::from_secs(5),
        }
    }

    #[test]
    fn an_action_is_due_at_once_and_then_after_its_interval() {
        let seconds = Duration::from_secs;
        let mut last = None;
        let due = [0, 29, 30, 31, 60].map(|now| is_due(&mut last, seconds(now), seconds(30)));
        assert_eq!(due, [true, false, true, false, true]);
        assert!(
            !is_due(&mut last, seconds(1), seconds(30)),
            "a clock that goes back is no reason"
        );
    }

    #[tokio::test]
    async fn the_holder_is_named_once_in_half_a_minute_and_never_taken_over_unasked() {
        let (run, notes) = noted_run(&[]);
        let watch = HolderWatch::new(&run, &id("shop/prod"));
        let seconds = [0, 10, 20, 30];
        for waited in seconds {
            let verdict = watch.waiting(&holder(), Duration::from_secs(waited)).await;
            assert_eq!(
                verdict,
                WaitVerdict::KeepWaiting,
                "no forge says that the run is over"
            );
        }
        let said = notes.take();
        assert_eq!(said.len(), 2, "{said:?}");
        for word in ["lease-1", "ada", "runs/7", "0 s so far"] {
            assert!(said[0].contains(word), "{word}: {said:?}");
        }
        run.cancel.cancel();
        let verdict = watch.waiting(&holder(), Duration::from_secs(90)).await;
        assert_eq!((verdict, notes.take()), (WaitVerdict::GiveUp, Vec::new()));
    }

    #[test]
    fn a_forge_that_does_not_answer_is_told_with_the_permission_that_it_misses() {
        let denied = ForgeError::Forbidden {
            forge: ForgeKind::Github,
            operation: "GET /x".to_owned(),
            permission: "actions: read".to_owned(),
        };
        let text = unanswered(ForgeKind::Github, &denied, &holder());
        assert!(
            text.contains("(`permissions: actions: read` allows the request)"),
            "{text}"
        );
        assert!(
            text.ends_with("its lease expires 90 s after its last renewal"),
            "{text}"
        );
        let broken = ForgeError::Server {
            forge: ForgeKind::Github,
            operation: "GET /x".to_owned(),
            status: 502,
        };
        assert!(!unanswered(ForgeKind::Github, &broken, &holder()).contains("permissions"));
    }
}
