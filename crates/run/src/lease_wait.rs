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

    fn lock_times(&self) -> std::sync::MutexGuard<'_, WaitTimes> {
        self.last_actions.lock().expect("no panic while the lock is held")
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
                if !std::mem::replace(&mut self.lock_times().unanswered, true) {
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
            let mut times = self.lock_times();
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
