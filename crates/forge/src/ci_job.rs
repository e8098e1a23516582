//! The CI job that runs Konverge: facts from its runner, and results that the runner accepts.

use std::{
    fmt::Debug,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{ForgeError, Result},
    event::JobEvent,
    kind::{ForgeKind, Unsupported},
};
use konverge_base::model::{CommitId, check_run::Annotation};

/// The facts about a job that its runner provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInfo {
    /// The name of the event.
    pub event_name: String,
    /// The repository as `owner/name`.
    pub repository: String,
    /// The commit of the event; for a pull request, the merge commit.
    pub sha: CommitId,
    /// The ref of the event, such as `refs/heads/main`.
    pub ref_name: String,
    /// The user who started the run, or re-ran it.
    pub actor: String,
    /// The user who started the first attempt of the run.
    pub starter: String,
    /// The web address of the forge, such as `https://github.com`.
    pub server_url: String,
    /// Id of the run.
    pub run_id: u64,
    /// The attempt of the run, from 1.
    pub run_attempt: u32,
    /// The file of the run's workflow, such as `konverge.yml`.
    pub workflow_file: Option<String>,
    /// The folder of the checkout.
    pub workspace: Option<PathBuf>,
}

/// A job of a forge's CI.
pub trait CiJob: Debug + Send + Sync {
    /// Returns the forge that the job belongs to.
    fn kind(&self) -> ForgeKind;

    /// Returns the facts that the runner provides.
    fn info(&self) -> &JobInfo;

    /// Returns a copy of the job with another attempt number, for a forge that counts attempts itself.
    fn of_attempt(&self, attempt: u32) -> Arc<dyn CiJob>;

    /// Parses the event that started the job.
    ///
    /// # Errors
    /// An unreadable payload; an event that Konverge does not support or refuses.
    fn event(&self) -> Result<JobEvent>;

    /// Returns the URL of the run.
    fn run_url(&self) -> String;

    /// Returns the URL of this attempt of the run.
    fn attempt_url(&self) -> String;

    /// Returns the URL of the list of the run's artifacts. The pull request comment links there as long as the
    /// artifact itself has no URL.
    fn artifacts_url(&self) -> String;

    /// Returns the number in the URL of the run. Later runs of the repository have higher numbers.
    fn page_number(&self) -> u64 {
        self.info().run_id
    }

    /// Parses the URL of a run in this repository. Returns the number of the run in the URL, and the attempt if the URL
    /// contains one.
    fn run_of_page(&self, page: &str) -> Option<(u64, Option<u32>)>;

    /// Sets outputs of the step. Does nothing if the runner has no file for outputs.
    ///
    /// # Errors
    /// The file cannot be written.
    fn set_outputs(&self, outputs: &[(&str, String)]) -> Result<()>;

    /// Appends to the job summary. A text that would exceed the runner's limit is replaced by a note. Does nothing
    /// if the runner has no summary.
    ///
    /// # Errors
    /// The summary cannot be written.
    fn add_summary(&self, markdown: &str) -> Result<()>;

    /// Returns the file of the job summary, if there is one.
    fn summary_file(&self) -> Option<&Path>;

    /// Returns the length of the job summary in bytes.
    fn summary_length(&self) -> u64 {
        let found = self.summary_file().and_then(|path| fs::metadata(path).ok());
        found.map_or(0, |found| found.len())
    }

    /// Returns the lines to print that make the runner show annotations, at most as many as the runner shows.
    fn annotations(&self, notes: &[Annotation]) -> Vec<String>;

    /// Returns the folder in the repository with the workflow files of the forge's jobs.
    ///
    /// # Errors
    /// The forge has no workflow files.
    fn workflow_folder(&self) -> Result<&'static str, Unsupported>;

    /// Returns the issuer of the identity tokens of the forge's jobs.
    ///
    /// # Errors
    /// The forge's jobs have no identity.
    fn token_issuer(&self) -> Result<String, Unsupported>;

    /// Returns true if a URL belongs to a later run of this repository, or to a later attempt of this run.
    fn is_later_page(&self, page: &str) -> bool {
        let this = (self.page_number(), Some(self.info().run_attempt));
        self.run_of_page(page).is_some_and(|run| run > this)
    }

    /// Returns true if a URL belongs to any attempt of this run.
    fn is_page_of_run(&self, page: &str) -> bool {
        self.run_of_page(page)
            .is_some_and(|(run, _)| run == self.page_number())
    }
}

/// Appends to a file that a variable of the job names. Does nothing if the variable names none.
///
/// # Errors
/// The file cannot be written.
pub fn append_to_job_file(path: Option<&Path>, variable: &str, text: &str, hint: &str) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let written = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| ForgeError::Unusable {
        message: format!("{} ({variable}) cannot be written", path.display()),
        cause: error.into(),
        hint: hint.to_owned(),
    })
}
