//! The job of a pipeline: the facts from its runner, and the results that it can report. These are few: GitLab has
//! no job summary, no annotations at lines, and cannot mask new values while a job runs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use konverge_base::{model::check_run::Annotation, variables};
use konverge_forge::{CiJob, ForgeKind, JobEvent, JobInfo, Result, Unsupported, append_to_job_file};
use konverge_secrets::{AddressParts, credential_in, without_credentials};

use crate::{
    environment::{Environment, is_project},
    event::{self, Variables},
    without,
};

/// The separator before the attempt in a URL. GitLab's URL of a pipeline has no attempt, so Konverge adds one for a
/// retried job.
const ATTEMPT: &str = "#attempt-";

/// Parses the end of a pipeline's URL: `42`, or with an attempt `42#attempt-2`.
pub(super) fn pipeline_of_page(end: &str) -> Option<(u64, Option<u32>)> {
    Some(match end.split_once(ATTEMPT) {
        Some((pipeline, attempt)) => (pipeline.parse().ok()?, Some(attempt.parse().ok()?)),
        None => (end.parse().ok()?, None),
    })
}

/// A job of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineJob {
    info: JobInfo,
    event: Result<JobEvent>,
    /// The URL of the job, or else of its pipeline.
    page: String,
    /// A file in place of a summary, if a later part of the job keeps that file as an artifact.
    summary: Option<PathBuf>,
}

impl PipelineJob {
    /// Reads the environment.
    ///
    /// # Errors
    /// The first missing or invalid variable.
    pub fn from_env(env: &BTreeMap<String, String>) -> Result<Self> {
        let here = Environment::new(env);
        let vars = Variables(here);
        let project = vars.text(variables::CI_PROJECT_PATH)?;
        if !is_project(project) {
            return Err(event::unusable(variables::CI_PROJECT_PATH, project));
        }
        let server_url = vars.text(variables::CI_SERVER_URL)?.trim_end_matches('/');
        if credential_in(server_url, AddressParts::default()).is_some() {
            let shown = without_credentials(server_url);
            return Err(event::unusable(variables::CI_SERVER_URL, &shown));
        }
        let actor = here.actor().unwrap_or_default();
        let pipeline = vars.number(variables::CI_PIPELINE_ID)?;
        let info = JobInfo {
            event_name: vars.text(variables::CI_PIPELINE_SOURCE)?.to_owned(),
            repository: project.to_owned(),
            sha: vars.commit(variables::CI_COMMIT_SHA)?,
            ref_name: vars.full_ref()?,
            actor: actor.to_owned(),
            // After a retry this variable names who retried the job. So `starter` is later requested from GitLab.
            starter: actor.to_owned(),
            server_url: server_url.to_owned(),
            run_id: pipeline,
            // No variable has the number of retries. So the attempt is later requested from GitLab.
            run_attempt: 1,
            workflow_file: None,
            workspace: here.var(variables::CI_PROJECT_DIR).map(PathBuf::from),
        };
        let page = here
            .job_url()
            .unwrap_or_else(|| format!("{server_url}/{project}/-/pipelines/{pipeline}"));
        Ok(Self {
            event: event::read(vars, &info),
            info,
            page,
            summary: here.var(variables::KONVERGE_SUMMARY).map(PathBuf::from),
        })
    }
}

impl CiJob for PipelineJob {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Gitlab
    }

    fn info(&self) -> &JobInfo {
        &self.info
    }

    fn of_attempt(&self, attempt: u32) -> Arc<dyn CiJob> {
        let mut job = self.clone();
        job.info.run_attempt = attempt;
        Arc::new(job)
    }

    fn event(&self) -> Result<JobEvent> {
        self.event.clone()
    }

    fn run_url(&self) -> String {
        let JobInfo {
            server_url,
            repository,
            run_id,
            ..
        } = &self.info;
        format!("{server_url}/{repository}/-/pipelines/{run_id}")
    }

    fn attempt_url(&self) -> String {
        // A retried job stays in its pipeline, and the pipeline's URL has no attempt.
        match self.info.run_attempt {
            0 | 1 => self.run_url(),
            later => format!("{}{ATTEMPT}{later}", self.run_url()),
        }
    }

    fn artifacts_url(&self) -> String {
        format!("{}/artifacts/browse", self.page)
    }

    fn run_of_page(&self, page: &str) -> Option<(u64, Option<u32>)> {
        let JobInfo {
            server_url,
            repository,
            ..
        } = &self.info;
        let pipelines = format!("{server_url}/{repository}/-/pipelines/");
        pipeline_of_page(page.strip_prefix(&pipelines)?)
    }

    fn set_outputs(&self, _: &[(&str, String)]) -> Result<()> {
        // A dotenv report cannot contain line breaks, and would override variables of all later jobs.
        Ok(())
    }

    fn add_summary(&self, markdown: &str) -> Result<()> {
        let hint = "name a file below CI_PROJECT_DIR, so that `artifacts:` of the job can keep it";
        append_to_job_file(self.summary_file(), variables::KONVERGE_SUMMARY, markdown, hint)
    }

    fn summary_file(&self) -> Option<&Path> {
        self.summary.as_deref()
    }

    fn annotations(&self, _: &[Annotation]) -> Vec<String> {
        Vec::new()
    }

    fn workflow_folder(&self) -> Result<&'static str, Unsupported> {
        Err(without("folder of workflow files"))
    }

    fn token_issuer(&self) -> Result<String, Unsupported> {
        // A CI file with `id_tokens:` gives tokens to a job before the job runs. A running job cannot request one.
        Err(without("identity tokens that a job asks for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::pushed;

    #[test]
    fn a_job_is_known_by_its_pipeline() {
        let job = PipelineJob::from_env(&pushed()).unwrap();
        assert_eq!(job.info.repository, "acme/platform/konfig");
        assert_eq!(job.info.ref_name, "refs/heads/main");
        let page = "https://acme.example/git/acme/platform/konfig/-/pipelines/42";
        assert_eq!((job.run_url().as_str(), job.attempt_url().as_str()), (page, page));
        assert!(job.is_page_of_run(page) && !job.is_later_page(page));
        // A retry counts as another attempt of the same run.
        let retried = job.of_attempt(2);
        let second = retried.attempt_url();
        assert_eq!(second, format!("{page}#attempt-2"));
        assert_eq!(job.run_of_page(&second), Some((42, Some(2))));
        assert!(job.is_page_of_run(&second) && job.is_later_page(&second));
        assert!(!retried.is_later_page(page) && !retried.is_later_page(&second));
        let later = "https://acme.example/git/acme/platform/konfig/-/pipelines/43";
        assert!(job.is_later_page(later) && !job.is_page_of_run(later));
        for other in [
            "https://acme.example/git/acme/other/-/pipelines/43",
            "https://acme.example/git/acme/platform/konfig/-/pipelines/43/x",
            "https://acme.example/git/acme/platform/konfig/-/pipelines/43#attempt-x",
            "https://acme.example/git/acme/platform/konfig/-/pipelines/43#other",
            "https://evil.example/git/acme/platform/konfig/-/pipelines/43",
        ] {
            assert!(!job.is_later_page(other), "{other}");
        }
    }

    #[test]
    fn what_is_missing_or_cannot_be_is_named() {
        for (name, value) in [
            (variables::CI_PROJECT_PATH, "acme/../konfig"),
            (variables::CI_COMMIT_SHA, "main"),
            (variables::CI_SERVER_URL, "https://ada:secret@acme.example"),
            (variables::CI_PIPELINE_ID, "soon"),
            (variables::CI_PROJECT_PATH, ""),
        ] {
            let mut env = pushed();
            env.insert(name.to_owned(), value.to_owned());
            let said = PipelineJob::from_env(&env).unwrap_err().to_string();
            assert!(said.contains(name) && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn the_summary_is_a_file_if_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut env = pushed();
        PipelineJob::from_env(&env)
            .unwrap()
            .add_summary("nowhere")
            .unwrap();
        let path = folder.path().join("summary.md");
        env.insert(variables::KONVERGE_SUMMARY.to_owned(), path.display().to_string());
        let job = PipelineJob::from_env(&env).unwrap();
        job.add_summary("one\n").unwrap();
        job.add_summary("two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(job.summary_length(), 8);
    }
}
