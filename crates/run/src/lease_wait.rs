//! While another run holds a stack's lease: shows the holder, and asks the forge whether that run has ended.

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

/// The interval of the line about the holder; the first one comes at once.
const NOTE_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of queries to the forge; the first one is sent at once. Most answers are *not modified*, which
/// do not count against the limit.
const QUERY_INTERVAL: Duration = Duration::from_secs(15);
/// The deadline of the forge's answer: in the meantime this run does not read the lease.
const FORGE_DEADLINE: Duration = Duration::from_secs(5);

/// Watches the holder of one stack's lease.
pub struct HolderWatch {
    run: RunContext,
    stack: StackId,
    forge: OnceLock<Option<Arc<dyn Forge>>>,
    last_actions: Mutex<WaitTimes>,
}

/// The times of the last actions, as time since the wait began.
#[derive(Default)]
struct WaitTimes {
    said: Option<Duration>,
    asked: Option<Duration>,
    unanswered: bool,
}

impl HolderWatch {
    /// Creates a watch for a run that waits for a stack's lease.
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

    /// Returns the forge if it says that the holder's run has ended. If no forge knows, the lease stays with its
    /// holder.
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
        "{forge} does not say whether that run is over: {}{may}; its lease expires {} s after its last renewal",
        chain(error),
        holder.term.as_secs()
    )
}

/// Returns true if an action is due again, and then counts it as done.
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
