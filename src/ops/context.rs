//! What every use case is given by the command line.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use super::repository_root;
use crate::{
    checkout::Checkout,
    error::{ErrorKind, UserError},
    model::event::EventSink,
    secrets::Secrets,
};

/// Takes remarks for people: what was assumed, what is weaker than it could be.
pub trait Notes: Send + Sync {
    /// One remark, one or more lines.
    fn note(&self, text: &str);

    /// A command to GitHub's runner, made by `ci::github::workflow`; nobody else hears it.
    fn command(&self, line: &str);
}

/// The surroundings of one run; cheap to clone.
#[derive(Clone)]
pub struct RunContext {
    /// The repository, or a folder in it.
    pub dir: PathBuf,
    /// The environment as it was at the start.
    pub env: BTreeMap<String, String>,
    /// What is secret.
    pub secrets: Secrets,
    /// Set when the run is asked to stop.
    pub cancel: CancellationToken,
    /// Set when the run begins to change something: from then on it ends by itself when it is asked to stop. Before, it
    /// is just dropped.
    pub writes: Arc<AtomicBool>,
    /// Hears how planning and applying go.
    pub events: Arc<dyn EventSink>,
    /// Hears remarks.
    pub notes: Arc<dyn Notes>,
}

impl RunContext {
    /// A variable of the environment that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The checkout that the run works in: nothing that is run or trusted comes from there.
    pub fn checkout(&self) -> Checkout {
        let root = repository_root(&self.dir).ok();
        Checkout::new(root.as_deref(), self.var("PATH").map(OsStr::new))
    }

    /// A folder for Konverge's own files by the XDG rules: `$<variable>/konverge`, else `$HOME/<fallback>/konverge`.
    ///
    /// # Errors
    /// Neither variable is set.
    pub fn xdg_folder(&self, variable: &str, fallback: &str) -> Result<PathBuf, UserError> {
        let base = match (
            self.var(variable).filter(|path| path.starts_with('/')),
            self.var("HOME"),
        ) {
            (Some(folder), _) => PathBuf::from(folder),
            (None, Some(home)) => PathBuf::from(home).join(fallback),
            (None, None) => {
                return Err(
                    UserError::new(ErrorKind::Config, format!("neither {variable} nor HOME is set"))
                        .hint(format!("set {variable} to a folder that Konverge may write to")),
                );
            }
        };
        Ok(base.join("konverge"))
    }

    /// The token for GitHub, if one is at hand.
    pub fn github_token(&self) -> Option<&str> {
        ["INPUT_GITHUB-TOKEN", "GITHUB_TOKEN", "GH_TOKEN"]
            .iter()
            .find_map(|name| self.var(name))
    }

    /// Where this run can be looked at: its page in GitHub Actions, of this very attempt, else who and where.
    pub fn url(&self) -> String {
        match (
            self.var("GITHUB_SERVER_URL"),
            self.var("GITHUB_REPOSITORY"),
            self.var("GITHUB_RUN_ID"),
        ) {
            (Some(server), Some(repository), Some(run)) => {
                let page = format!("{server}/{repository}/actions/runs/{run}");
                match self.var("GITHUB_RUN_ATTEMPT") {
                    Some(attempt) => format!("{page}/attempts/{attempt}"),
                    None => page,
                }
            }
            _ => format!(
                "{}@{} (process {})",
                self.actor(),
                self.var("HOSTNAME").unwrap_or("localhost"),
                std::process::id()
            ),
        }
    }

    /// Who started it.
    pub fn actor(&self) -> String {
        let names = ["GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR", "USER", "LOGNAME"];
        names
            .iter()
            .find_map(|name| self.var(name))
            .unwrap_or("unknown")
            .to_owned()
    }

    /// Says that something of lesser weight went wrong, and what to do about it: the run goes on.
    pub fn warn(&self, what: &str, failure: impl Into<UserError>) {
        let failure = failure.into();
        let hints: String = failure
            .hints
            .iter()
            .map(|hint| format!("\n  hint: {hint}"))
            .collect();
        self.notes
            .note(&format!("warning: {what}: {}{hints}", failure.message));
    }

    /// Says that the run changes something from here on: it is no longer dropped when it is asked to stop.
    ///
    /// # Errors
    /// It has been asked before.
    pub fn begin_writes(&self) -> Result<(), UserError> {
        self.check_interrupted()?;
        self.writes.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// An error if the run has been asked to stop.
    ///
    /// # Errors
    /// Interrupted.
    pub fn check_interrupted(&self) -> Result<(), UserError> {
        if self.cancel.is_cancelled() {
            return Err(UserError::new(ErrorKind::Interrupted, "interrupted")
                .hint("run it again: completed work is kept"));
        }
        Ok(())
    }
}
