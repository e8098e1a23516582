//! While another run holds a stack's lease: shows the holder, and asks GitHub whether that run is over.

use std::{
    sync::{Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;

use crate::RunContext;
use konverge_base::{model::StackId, retry::RetryPolicy};
use konverge_github::{Client, GithubError, RunPage};
use konverge_state::{Holder, LeaseWatch, WaitVerdict};

/// The interval of the line about the holder; the first one comes at once.
const SAY: Duration = Duration::from_secs(30);
/// The interval of queries to GitHub; the first one is sent at once. Most answers are *not modified*, which
/// do not count against the limit.
const ASK: Duration = Duration::from_secs(15);
/// The maximum wait for GitHub's answer: in the meantime this run does not read the lease.
const ANSWER: Duration = Duration::from_secs(5);

/// Watches the holder of one stack's lease.
pub struct HolderWatch {
    run: RunContext,
    stack: StackId,
    github: OnceLock<Option<Client>>,
    told: Mutex<WaitTimes>,
}

/// The times of the last actions, on the clock of the wait.
#[derive(Default)]
struct WaitTimes {
    said: Option<Duration>,
    asked: Option<Duration>,
    unanswered: bool,
}

impl HolderWatch {
    /// For a run that waits for a stack's lease.
    pub fn new(run: &RunContext, stack: &StackId) -> Self {
        Self {
            run: run.clone(),
            stack: stack.clone(),
            github: OnceLock::new(),
            told: Mutex::default(),
        }
    }

    fn lock_times(&self) -> std::sync::MutexGuard<'_, WaitTimes> {
        self.told.lock().expect("no panic while the lock is held")
    }

    fn note(&self, text: &str) {
        self.run.notes.note(&format!("{}: {text}", self.stack));
    }

    /// Returns true if GitHub says that the holder's run is over. If it is unknown, nothing is taken over.
    async fn is_over(&self, holder: &Holder) -> bool {
        let server = self.run.var("GITHUB_SERVER_URL").unwrap_or("https://github.com");
        let Some(page) = RunPage::parse(&holder.writer.run, server) else {
            return false;
        };
        let client = match self.github.get_or_init(|| self.client()) {
            Some(client) => client,
            None => return false,
        };
        match client.is_over(&page).await {
            Ok(over) => over,
            Err(error) => {
                if !std::mem::replace(&mut self.lock_times().unanswered, true) {
                    self.note(&unanswered(&error, holder));
                }
                false
            }
        }
    }

    /// The API client for this run; `None` without a token.
    fn client(&self) -> Option<Client> {
        let token = self.run.github_token()?;
        let api = self.run.var("GITHUB_API_URL").unwrap_or("https://api.github.com");
        // The URL of the run names the repository.
        let client = Client::new(api, "", token, self.run.secrets.clone()).ok()?;
        let once = RetryPolicy {
            attempts: 1,
            ..RetryPolicy::default()
        };
        Some(client.with_patience(once).with_deadline(ANSWER))
    }
}

fn unanswered(error: &GithubError, holder: &Holder) -> String {
    let may = match error {
        GithubError::Forbidden { permission, .. } | GithubError::NotFound { permission, .. } => {
            format!(" (`permissions: {permission}` lets it ask)")
        }
        _ => String::new(),
    };
    format!(
        "GitHub does not say whether that run is over: {error}{may}; its lease expires {} s after its last renewal",
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
            let mut told = self.lock_times();
            (
                is_due(&mut told.said, waited, SAY),
                is_due(&mut told.asked, waited, ASK),
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
        if ask && self.is_over(holder).await {
            self.note(&format!(
                "GitHub reports that {} is over: taking over lease {}",
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
