//! The runner's environment: the event, the repository, the files for outputs.

use std::{collections::HashMap, fs, io::Write as _, path::PathBuf};

use super::{error::GithubError, workflow_commands};
use konverge_base::{
    model::CommitId,
    secrets::{AddressParts, credential_in, without_credentials},
};

/// The environment of GitHub's runner, or of a compatible one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// `GITHUB_EVENT_NAME`.
    pub event_name: String,
    /// The file with the payload of the event.
    pub event_path: PathBuf,
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
    /// `https://github.com`, or the GHES host.
    pub server_url: String,
    /// `https://api.github.com`, or the GHES host's `/api/v3`.
    pub api_url: String,
    /// Id of the workflow run.
    pub run_id: u64,
    /// The attempt of the run, from 1.
    pub run_attempt: u32,
    /// Name of the workflow.
    pub workflow: String,
    /// The file for outputs.
    pub output: Option<PathBuf>,
    /// The file for the job summary.
    pub summary: Option<PathBuf>,
    /// The folder of the checkout.
    pub workspace: Option<PathBuf>,
}

impl Runner {
    /// Returns true if the environment is that of a runner.
    pub fn is_here(env: &HashMap<String, String>) -> bool {
        env.get("GITHUB_ACTIONS").is_some_and(|v| v == "true")
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// The first variable that is missing or invalid.
    pub fn from_env(env: &HashMap<String, String>) -> Result<Self, GithubError> {
        let optional = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let required = |name: &str| {
            optional(name).ok_or_else(|| GithubError::Runner {
                message: format!("{name} is not set: not running in GitHub Actions"),
                hint: "run `konverge preview` or `konverge apply` outside of a job; in a `container:` job pass the GITHUB_ variables on".to_owned(),
            })
        };
        let unusable = |name: &str, value: &str| GithubError::Runner {
            message: format!("{name} has the invalid value `{}`", value.escape_debug()),
            hint: "the runner sets it; does the workflow's `env:` overwrite it?".to_owned(),
        };
        let repository = required("GITHUB_REPOSITORY")?;
        if repository.split('/').filter(|part| is_name(part)).count() != 2
            || repository.matches('/').count() != 1
        {
            return Err(unusable("GITHUB_REPOSITORY", &repository));
        }
        let sha = required("GITHUB_SHA")?;
        let server_url = optional("GITHUB_SERVER_URL").unwrap_or_else(|| "https://github.com".to_owned());
        if credential_in(&server_url, AddressParts::default()).is_some() {
            return Err(unusable("GITHUB_SERVER_URL", &without_credentials(&server_url)));
        }
        let number = |name: &str, default: u64| match optional(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| unusable(name, &value)),
        };
        Ok(Self {
            event_name: required("GITHUB_EVENT_NAME")?,
            event_path: required("GITHUB_EVENT_PATH")?.into(),
            sha: sha.parse().map_err(|_| unusable("GITHUB_SHA", &sha))?,
            repository,
            ref_name: required("GITHUB_REF")?,
            actor: optional("GITHUB_TRIGGERING_ACTOR")
                .or_else(|| optional("GITHUB_ACTOR"))
                .unwrap_or_default(),
            starter: optional("GITHUB_ACTOR").unwrap_or_default(),
            server_url,
            api_url: optional("GITHUB_API_URL").unwrap_or_else(|| "https://api.github.com".to_owned()),
            run_id: number("GITHUB_RUN_ID", 0)?,
            run_attempt: u32::try_from(number("GITHUB_RUN_ATTEMPT", 1)?).unwrap_or(u32::MAX),
            workflow: optional("GITHUB_WORKFLOW").unwrap_or_default(),
            output: optional("GITHUB_OUTPUT").map(PathBuf::from),
            summary: optional("GITHUB_STEP_SUMMARY").map(PathBuf::from),
            workspace: optional("GITHUB_WORKSPACE").map(PathBuf::from),
        })
    }

    /// The URL of the run.
    pub fn run_url(&self) -> String {
        format!(
            "{}/{}/actions/runs/{}",
            self.server_url, self.repository, self.run_id
        )
    }

    /// Where GitHub lists the artifacts of this run. The comment links there until the page is linked.
    pub fn artifacts_url(&self) -> String {
        format!("{}#artifacts", self.run_url())
    }

    /// The URL of this attempt of the run.
    pub fn attempt_url(&self) -> String {
        format!("{}/attempts/{}", self.run_url(), self.run_attempt)
    }

    /// The run of a URL of this repository, and the attempt if the URL names one.
    fn run_of_page(&self, page: &str) -> Option<(u64, Option<u32>)> {
        let runs = format!("{}/{}/actions/runs/", self.server_url, self.repository);
        let mut parts = page.strip_prefix(&runs)?.split('/');
        let run = parts.next()?.parse().ok()?;
        let attempt = match (parts.next(), parts.next()) {
            (Some("attempts"), Some(attempt)) => attempt.parse().ok(),
            _ => None,
        };
        Some((run, attempt))
    }

    /// Returns true if a URL is that of a later run of this repository, or of a later attempt of this run.
    pub fn is_later_page(&self, page: &str) -> bool {
        let this = (self.run_id, Some(self.run_attempt));
        self.run_of_page(page).is_some_and(|run| run > this)
    }

    /// Returns true if a URL is that of any attempt of this run.
    pub fn is_page_of_run(&self, page: &str) -> bool {
        self.run_of_page(page).is_some_and(|(run, _)| run == self.run_id)
    }

    /// Sets outputs of the step. Does nothing if there is no file for them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_outputs(&self, outputs: &[(&str, String)]) -> Result<(), GithubError> {
        let text: String = outputs
            .iter()
            .map(|(name, value)| workflow_commands::output(name, value))
            .collect();
        append(self.output.as_ref(), "GITHUB_OUTPUT", &text)
    }

    /// Appends to the job summary. GitHub shows nothing of a summary above 1 MiB, so what would exceed it is
    /// left out with a note. The text must already fit the budget.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_summary(&self, markdown: &str) -> Result<(), GithubError> {
        const LIMIT: u64 = 1_048_576 - 1024;
        let Some(path) = &self.summary else { return Ok(()) };
        let there = fs::metadata(path).map_or(0, |meta| meta.len());
        if there + markdown.len() as u64 > LIMIT {
            let note = "\n**Not shown**: the summary of this step is full.\n";
            if there + note.len() as u64 > LIMIT {
                return Ok(());
            }
            return append(self.summary.as_ref(), "GITHUB_STEP_SUMMARY", note);
        }
        append(self.summary.as_ref(), "GITHUB_STEP_SUMMARY", markdown)
    }
}

/// Returns true for a valid name of an owner or a repository, which cannot change a path.
pub(super) fn is_name(part: &str) -> bool {
    !part.is_empty()
        && part != "."
        && part != ".."
        && part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

fn append(path: Option<&PathBuf>, variable: &str, text: &str) -> Result<(), GithubError> {
    let Some(path) = path else { return Ok(()) };
    let written = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| GithubError::Runner {
        message: format!("{} ({variable}) cannot be written: {error}", path.display()),
        hint: "the user of the job's container must be able to write it: leave out `options: --user`, or name the runner's own"
            .to_owned(),
    })
}
