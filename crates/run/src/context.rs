//! The context of a run: its environment, secrets, notes and interruption.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use konverge_base::{
    checkout::Checkout,
    error::{ErrorKind, UserError},
    model::{
        event::{EventSink, RunEvent, Step},
        note::Note,
        timeline::Timeline,
    },
    variables,
};
use konverge_repo::git::Repository;
use konverge_secrets::Secrets;
use konverge_trace::Recorder;

/// Prints notes to the user, for example assumptions and warnings.
pub trait Notes: Send + Sync {
    /// Prints a note. A repeated warning is printed once.
    fn say(&self, note: Note);

    /// Prints what the run does now.
    fn info(&self, text: &str) {
        self.say(Note::info(text));
    }

    /// Prints a remark that the user should read.
    fn note(&self, text: &str) {
        self.say(Note::remark(text));
    }

    /// Prints a warning that something may be wrong.
    fn warning(&self, text: &str) {
        self.say(Note::warning(text));
    }

    /// Prints a command for the runner of a job, from [`CiJob`](konverge_forge::CiJob). Ignored outside a job.
    fn command(&self, line: &str);
}

/// Discards all notes.
pub struct NoNotes;

impl Notes for NoNotes {
    fn say(&self, _: Note) {}

    fn command(&self, _: &str) {}
}

/// The context of one run. Cheap to clone.
#[derive(Clone)]
pub struct RunContext {
    /// The repository, or a folder in it.
    pub dir: PathBuf,
    /// The environment at the start.
    pub env: BTreeMap<String, String>,
    /// The registry of secrets, for masking.
    pub secrets: Secrets,
    /// Cancelled when the run is interrupted.
    pub cancel: CancellationToken,
    /// Set when the run starts to change something: from then on an interrupted run ends in order. Before, it is just
    /// dropped.
    pub writes: Arc<AtomicBool>,
    /// Receives the progress events of planning and applying.
    pub events: Arc<dyn EventSink>,
    /// Receives notes for the user.
    pub notes: Arc<dyn Notes>,
    /// Records the spans of the run, with their times.
    pub recorder: Recorder,
}

impl RunContext {
    /// Returns the value of an environment variable; `None` if the variable is missing or empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the timeline of the run so far, with secret host names masked.
    pub fn timeline(&self) -> Timeline {
        let recorded = self.recorder.timeline();
        recorded.with_hosts(|host| self.secrets.mask(host))
    }

    /// Returns true in a job of a CI service.
    pub fn in_ci(&self) -> bool {
        is_ci(&self.env)
    }

    /// Returns the checkout of the run. Files in it are never executed or trusted.
    pub fn checkout(&self) -> Checkout {
        let root = repository_root(&self.dir).ok();
        Checkout::new(root.as_deref(), self.var(variables::PATH).map(OsStr::new))
    }

    /// Returns the folder for Konverge's own files by the XDG rules: `$<variable>/konverge`, or else
    /// `$HOME/<fallback>/konverge`.
    ///
    /// # Errors
    /// Neither variable is set.
    pub fn xdg_folder(&self, variable: &str, fallback: &str) -> Result<PathBuf, UserError> {
        let base = match (
            self.var(variable).filter(|path| path.starts_with('/')),
            self.var(variables::HOME),
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

    /// Returns the name of the user account.
    pub(crate) fn account(&self) -> String {
        let named = [variables::USER, variables::LOGNAME]
            .iter()
            .find_map(|name| self.var(name).map(str::to_owned));
        // A service or a container may set none of these variables, so the account comes from the user id.
        let account = || nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
        named
            .or_else(|| account().map(|user| user.name))
            .unwrap_or_else(|| format!("user {}", nix::unistd::getuid()))
    }

    /// Returns the host name of this machine.
    pub(crate) fn host(&self) -> String {
        let own = || nix::unistd::gethostname().ok()?.into_string().ok();
        let named = self.var(variables::HOSTNAME).map(str::to_owned).or_else(own);
        named.unwrap_or_else(|| "localhost".to_owned())
    }

    /// Prints a warning about an error that does not end the run, with the hints of the error.
    pub fn warn(&self, what: &str, failure: impl Into<UserError>) {
        let failure = failure.into();
        let hints: String = failure
            .hints
            .iter()
            .map(|hint| format!("\n  hint: {hint}"))
            .collect();
        self.notes.warning(&format!("{what}: {}{hints}", failure.message));
    }

    /// Marks that the run changes something from here on, so that an interruption no longer just drops it.
    ///
    /// # Errors
    /// The run was interrupted before.
    pub fn begin_writes(&self) -> Result<(), UserError> {
        self.check_interrupted()?;
        self.writes.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Returns an error if the run was interrupted.
    ///
    /// # Errors
    /// The run was interrupted.
    pub fn check_interrupted(&self) -> Result<(), UserError> {
        if self.cancel.is_cancelled() {
            return Err(UserError::new(ErrorKind::Interrupted, "interrupted")
                .hint("run the command again: completed work is recorded and is not repeated"));
        }
        Ok(())
    }
}

/// Returns true if the environment is that of a CI job: every CI service sets `CI`.
pub fn is_ci(env: &BTreeMap<String, String>) -> bool {
    [variables::CI, variables::GITHUB_ACTIONS]
        .iter()
        .filter_map(|name| env.get(*name))
        .any(|value| !matches!(value.as_str(), "" | "false"))
}

/// Counts the stacks that a step has processed, and reports the progress.
pub struct StepCounter {
    events: Arc<dyn EventSink>,
    step: Step,
    total: usize,
    done: AtomicUsize,
}

impl StepCounter {
    /// Starts a step over `total` stacks.
    pub fn start(run: &RunContext, step: Step, total: usize) -> Self {
        let counter = Self {
            events: Arc::clone(&run.events),
            step,
            total,
            done: AtomicUsize::new(0),
        };
        counter.report(0);
        counter
    }

    /// Counts one more processed stack, and reports the progress.
    pub fn advance(&self) {
        self.report(self.done.fetch_add(1, Ordering::SeqCst) + 1);
    }

    fn report(&self, done: usize) {
        self.events.event(RunEvent::StepProgress {
            step: self.step,
            done,
            total: self.total,
        });
    }
}

/// Returns the root of the repository that contains a folder.
///
/// # Errors
/// The folder is not in a repository.
pub fn repository_root(dir: &Path) -> Result<PathBuf, UserError> {
    Ok(Repository::discover(dir)?.root().to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{noted_run, run};

    #[test]
    fn a_job_is_told_by_any_value_but_false() {
        for (value, is_job) in [
            ("true", true),
            ("1", true),
            ("False", true),
            ("false", false),
            ("", false),
        ] {
            for name in ["CI", "GITHUB_ACTIONS"] {
                assert_eq!(run(&[(name, value)]).in_ci(), is_job, "{name}={value}");
            }
        }
        assert!(run(&[("CI", "false"), ("GITHUB_ACTIONS", "true")]).in_ci());
        assert!(!run(&[]).in_ci());
    }

    /// After the first write an interrupted run must end in order, and before it nothing may begin.
    #[test]
    fn an_interrupted_run_begins_no_write() {
        let first = run(&[]);
        first.begin_writes().unwrap();
        assert!(first.writes.load(Ordering::SeqCst));
        let late = run(&[]);
        late.cancel.cancel();
        assert_eq!(late.begin_writes().unwrap_err().kind, ErrorKind::Interrupted);
        assert!(!late.writes.load(Ordering::SeqCst));
    }

    #[test]
    fn a_folder_of_our_own_needs_a_home() {
        let folder = |variables: &[(&str, &str)]| run(variables).xdg_folder("XDG_CACHE_HOME", ".cache");
        let home = ("HOME", "/home/ada");
        assert_eq!(folder(&[home]).unwrap(), Path::new("/home/ada/.cache/konverge"));
        assert_eq!(
            folder(&[home, ("XDG_CACHE_HOME", "/c")]).unwrap(),
            Path::new("/c/konverge")
        );
        let refused = folder(&[("XDG_CACHE_HOME", "relative")]).unwrap_err();
        assert_eq!(refused.message, "neither XDG_CACHE_HOME nor HOME is set");
    }

    #[test]
    fn a_warning_keeps_what_to_do() {
        let (run, notes) = noted_run(&[]);
        let failure = UserError::new(ErrorKind::Store, "no answer")
            .hint("one")
            .hint("two");
        run.warn("the index is not written", failure);
        assert_eq!(
            notes.take(),
            ["the index is not written: no answer\n  hint: one\n  hint: two"]
        );
    }
}
