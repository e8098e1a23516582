//! The environment of a runner: the event, the repository, the files for outputs.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    dialect::{Dialect, gitea_page_number},
    workflow_commands,
};
use konverge_base::{model::check_run::Annotation, variables};
use konverge_forge::{CiJob, ForgeError, ForgeKind, JobEvent, JobInfo, Unsupported, append_to_job_file};
use konverge_secrets::{AddressParts, credential_in, without_credentials};

/// The environment of a runner of GitHub or Gitea.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    pub(super) dialect: Dialect,
    pub(super) info: JobInfo,
    /// The number in the URL of the run.
    page_number: u64,
    /// The file with the payload of the event.
    pub(super) event_path: PathBuf,
    /// The file for outputs.
    output: Option<PathBuf>,
    /// The file for the job summary; `None` if the forge shows no summary.
    summary: Option<PathBuf>,
}

impl Runner {
    /// Reads the environment.
    ///
    /// # Errors
    /// The first missing or invalid variable.
    pub fn from_env(env: &HashMap<String, String>, dialect: Dialect) -> Result<Self, ForgeError> {
        let optional = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let required = |name: &str| {
            optional(name).ok_or_else(|| ForgeError::Runner {
                message: format!("{name} is not set: not running in {} Actions", dialect.kind()),
                hint: "run `konverge preview` or `konverge apply` outside of a job; in a `container:` job pass the GITHUB_ variables on".to_owned(),
            })
        };
        let unusable = |name: &str, value: &str| ForgeError::Runner {
            message: format!("{name} has the invalid value `{}`", value.escape_debug()),
            hint: "remove the variable from the workflow's `env:`: the runner sets it".to_owned(),
        };
        let repository = required(variables::GITHUB_REPOSITORY)?;
        if repository.split('/').filter(|part| is_name(part)).count() != 2
            || repository.matches('/').count() != 1
        {
            return Err(unusable(variables::GITHUB_REPOSITORY, &repository));
        }
        let sha = required(variables::GITHUB_SHA)?;
        let server_url = match (optional(variables::GITHUB_SERVER_URL), dialect.default_server()) {
            (Some(server), _) => server.trim_end_matches('/').to_owned(),
            (None, Some(server)) => server.to_owned(),
            (None, None) => required(variables::GITHUB_SERVER_URL)?,
        };
        if credential_in(&server_url, AddressParts::default()).is_some() {
            return Err(unusable(
                variables::GITHUB_SERVER_URL,
                &without_credentials(&server_url),
            ));
        }
        let number = |name: &str, default: u64| match optional(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| unusable(name, &value)),
        };
        let workflow_file = match dialect {
            // The value has the form `owner/name/.github/workflows/konverge.yml@refs/heads/main`.
            Dialect::Github => optional(variables::GITHUB_WORKFLOW_REF)
                .and_then(|place| Some(place.split('@').next()?.rsplit('/').next()?.to_owned())),
            // In Gitea the name of a workflow is its file name, unless the file sets another.
            Dialect::Gitea => optional(variables::GITHUB_WORKFLOW)
                .filter(|name| (name.ends_with(".yml") || name.ends_with(".yaml")) && is_name(name)),
        };
        let event_name = required(variables::GITHUB_EVENT_NAME)?;
        let ref_name = dialect.full_ref(&event_name, required(variables::GITHUB_REF)?);
        let run_id = number(variables::GITHUB_RUN_ID, 0)?;
        let value = |name: &str| {
            env.get(name)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        let page_number = match dialect {
            Dialect::Github => run_id,
            Dialect::Gitea => gitea_page_number(value).unwrap_or(run_id),
        };
        Ok(Self {
            dialect,
            page_number,
            info: JobInfo {
                event_name,
                sha: sha.parse().map_err(|_| unusable(variables::GITHUB_SHA, &sha))?,
                repository,
                ref_name,
                actor: optional(variables::GITHUB_TRIGGERING_ACTOR)
                    .or_else(|| optional(variables::GITHUB_ACTOR))
                    .unwrap_or_default(),
                starter: optional(variables::GITHUB_ACTOR).unwrap_or_default(),
                server_url,
                run_id,
                run_attempt: u32::try_from(number(variables::GITHUB_RUN_ATTEMPT, 1)?).unwrap_or(u32::MAX),
                workflow_file,
                workspace: optional(variables::GITHUB_WORKSPACE).map(PathBuf::from),
            },
            event_path: required(variables::GITHUB_EVENT_PATH)?.into(),
            output: optional(variables::GITHUB_OUTPUT).map(PathBuf::from),
            // Gitea's runner sets a file too, but Gitea shows it to nobody.
            summary: optional(variables::GITHUB_STEP_SUMMARY)
                .filter(|_| dialect == Dialect::Github)
                .map(PathBuf::from),
        })
    }
}

impl CiJob for Runner {
    fn kind(&self) -> ForgeKind {
        self.dialect.kind()
    }

    fn info(&self) -> &JobInfo {
        &self.info
    }

    fn of_attempt(&self, attempt: u32) -> Arc<dyn CiJob> {
        let mut job = self.clone();
        job.info.run_attempt = attempt;
        Arc::new(job)
    }

    fn event(&self) -> Result<JobEvent, ForgeError> {
        self.read_event()
    }

    fn run_url(&self) -> String {
        let JobInfo {
            server_url,
            repository,
            ..
        } = &self.info;
        format!("{server_url}/{repository}/actions/runs/{}", self.page_number)
    }

    fn page_number(&self) -> u64 {
        self.page_number
    }

    fn attempt_url(&self) -> String {
        match self.dialect {
            Dialect::Github => format!("{}/attempts/{}", self.run_url(), self.info.run_attempt),
            Dialect::Gitea => self.run_url(),
        }
    }

    fn artifacts_url(&self) -> String {
        match self.dialect {
            Dialect::Github => format!("{}#artifacts", self.run_url()),
            Dialect::Gitea => self.run_url(),
        }
    }

    fn run_of_page(&self, page: &str) -> Option<(u64, Option<u32>)> {
        let runs = format!("{}/{}/actions/runs/", self.info.server_url, self.info.repository);
        let mut parts = page.strip_prefix(&runs)?.split('/');
        let run = parts.next()?.parse().ok()?;
        let attempt = match (parts.next(), parts.next()) {
            (Some("attempts"), Some(attempt)) => attempt.parse().ok(),
            _ => None,
        };
        Some((run, attempt))
    }

    fn set_outputs(&self, outputs: &[(&str, String)]) -> Result<(), ForgeError> {
        let text: String = outputs
            .iter()
            .map(|(name, value)| workflow_commands::output(name, value))
            .collect();
        append_to_job_file(
            self.output.as_deref(),
            variables::GITHUB_OUTPUT,
            &text,
            UNWRITABLE,
        )
    }

    fn add_summary(&self, markdown: &str) -> Result<(), ForgeError> {
        // GitHub shows nothing at all if a summary exceeds 1 MiB.
        const LIMIT: u64 = 1_048_576 - 1024;
        let there = self.summary_length();
        let append = |text| {
            append_to_job_file(
                self.summary_file(),
                variables::GITHUB_STEP_SUMMARY,
                text,
                UNWRITABLE,
            )
        };
        // A short note replaces the text, so that a reader knows that something is missing.
        if there + markdown.len() as u64 > LIMIT {
            let note = "\n**Not shown**: the summary of this step is full.\n";
            if there + note.len() as u64 > LIMIT {
                return Ok(());
            }
            return append(note);
        }
        append(markdown)
    }

    fn summary_file(&self) -> Option<&Path> {
        self.summary.as_deref()
    }

    fn annotations(&self, notes: &[Annotation]) -> Vec<String> {
        workflow_commands::annotations(notes)
    }

    fn workflow_folder(&self) -> Result<&'static str, Unsupported> {
        Ok(self.dialect.workflow_folder())
    }

    fn token_issuer(&self) -> Result<String, Unsupported> {
        self.dialect.token_issuer(&self.info.server_url)
    }
}

/// The hint if a file of the runner cannot be written.
const UNWRITABLE: &str = "the user of the job's container must be able to write this file: leave out `options: --user`, or name the runner's own";

/// Returns true for a valid name of an owner or a repository, which is safe in a path.
pub fn is_name(part: &str) -> bool {
    !part.is_empty()
        && part != "."
        && part != ".."
        && part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}
