//! The job that runs Konverge: the facts that its runner gives, and the results that it takes.

use std::{fmt::Debug, path::PathBuf, sync::Arc};

use crate::{
    error::ForgeError,
    event::JobEvent,
    kind::{ForgeKind, Unsupported},
};
use konverge_base::model::{CommitId, check_run::Annotation};

/// The facts about a job, as its runner gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInfo {
    /// The name of the event.
    pub event_name: String,
    /// `owner/name`.
    pub repository: String,
    /// The commit of the event; for a pull request the merge commit.
    pub sha: CommitId,
    /// The ref of the event, such as `refs/heads/main`.
    pub ref_name: String,
    /// The user who started the run, or re-ran it.
    pub actor: String,
    /// The user who started its first attempt.
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
    /// Returns the forge whose job it is.
    fn kind(&self) -> ForgeKind;

    /// Returns the facts that the runner gives.
    fn info(&self) -> &JobInfo;

    /// Returns a copy of the job with the attempt that the forge counts.
    fn of_attempt(&self, attempt: u32) -> Arc<dyn CiJob>;

    /// Parses the event that started it.
    ///
    /// # Errors
    /// An unreadable payload; an event that Konverge does not handle or refuses.
    fn event(&self) -> Result<JobEvent, ForgeError>;

    /// Returns the URL of the run.
    fn run_url(&self) -> String;

    /// Returns the URL of this attempt of the run.
    fn attempt_url(&self) -> String;

    /// Returns the URL of the list of the run's artifacts. The comment links there until the page is linked.
    fn artifacts_url(&self) -> String;

    /// Returns the number in the URL of the run, which grows from run to run.
    fn page_number(&self) -> u64 {
        self.info().run_id
    }

    /// Returns the number in the URL of a run of this repository, and the attempt if the URL names one.
    fn run_of_page(&self, page: &str) -> Option<(u64, Option<u32>)>;

    /// Sets outputs of the step. Does nothing if there is no place for them.
    ///
    /// # Errors
    /// They cannot be written.
    fn set_outputs(&self, outputs: &[(&str, String)]) -> Result<(), ForgeError>;

    /// Appends to the job summary. A text that would exceed the runner's limit is left out with a note. Does nothing if there is no
    /// summary.
    ///
    /// # Errors
    /// It cannot be written.
    fn add_summary(&self, markdown: &str) -> Result<(), ForgeError>;

    /// Returns the length of the job summary in bytes.
    fn summary_length(&self) -> u64;

    /// Returns the lines to print that make the runner show annotations, as many as it keeps.
    fn annotations(&self, notes: &[Annotation]) -> Vec<String>;

    /// Returns the folder of the workflow files that start the forge's jobs, in the repository.
    ///
    /// # Errors
    /// The forge has no such files.
    fn workflow_folder(&self) -> Result<&'static str, Unsupported>;

    /// Returns the issuer of the identity tokens of the forge's jobs.
    ///
    /// # Errors
    /// Its jobs have no identity.
    fn token_issuer(&self) -> Result<String, Unsupported>;

    /// Returns true if a URL is that of a later run of this repository, or of a later attempt of this run.
    fn is_later_page(&self, page: &str) -> bool {
        let this = (self.page_number(), Some(self.info().run_attempt));
        self.run_of_page(page).is_some_and(|run| run > this)
    }

    /// Returns true if a URL is that of any attempt of this run.
    fn is_page_of_run(&self, page: &str) -> bool {
        self.run_of_page(page)
            .is_some_and(|(run, _)| run == self.page_number())
    }
}
