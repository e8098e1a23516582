//! Facts from environment variables: the address of the API, the token, the URL of the job.

use std::collections::BTreeMap;

use konverge_base::{model::CommitId, variables};

/// The user name for git with a token. GitLab accepts any.
pub const GIT_USER: &str = "oauth2";

/// A job in a pipeline. A retry is another job with the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnJob {
    pub(super) pipeline: u64,
    /// The commit of the pipeline.
    pub(super) commit: CommitId,
    pub(super) id: u64,
    pub(super) name: String,
}

/// The environment variables about a GitLab project.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a>(&'a BTreeMap<String, String>);

impl<'a> Environment<'a> {
    /// Wraps a set of variables.
    pub fn new(variables: &'a BTreeMap<String, String>) -> Self {
        Self(variables)
    }

    /// Returns a variable, if it is set and not empty.
    pub(super) fn var(self, name: &str) -> Option<&'a str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns the token of a bot: the one for protected branches, if the job has it. The job's own CI_JOB_TOKEN
    /// may neither write notes nor read about people.
    pub fn token(self) -> Option<&'a str> {
        let protected = self.var(variables::KONVERGE_GITLAB_TOKEN);
        protected.or_else(|| self.var(variables::GITLAB_TOKEN))
    }

    /// Returns the web address of the server, without a trailing `/`.
    pub fn server_url(self) -> Option<&'a str> {
        self.var(variables::CI_SERVER_URL)
            .map(|url| url.trim_end_matches('/'))
    }

    /// Returns the address of the API.
    pub fn api_url(self) -> Option<String> {
        let named = self.var(variables::CI_API_V4_URL).map(str::to_owned);
        named.or_else(|| Some(format!("{}/api/v4", self.server_url()?)))
    }

    /// Returns the path of the project: `group/name`, with any number of subgroups between.
    pub fn project(self) -> Option<&'a str> {
        self.var(variables::CI_PROJECT_PATH)
    }

    /// Returns the id of the pipeline.
    pub fn pipeline(self) -> Option<u64> {
        self.var(variables::CI_PIPELINE_ID)?.parse().ok()
    }

    /// Returns the URL of the job. Each retry has its own URL.
    pub fn job_url(self) -> Option<String> {
        let (server, project) = (self.server_url()?, self.project()?);
        let job: u64 = self.var(variables::CI_JOB_ID)?.parse().ok()?;
        Some(format!("{server}/{project}/-/jobs/{job}"))
    }

    /// Returns the job that this process runs in; `None` if a variable is missing.
    pub fn own_job(self) -> Option<OwnJob> {
        Some(OwnJob {
            pipeline: self.pipeline()?,
            commit: self.var(variables::CI_COMMIT_SHA)?.parse().ok()?,
            id: self.var(variables::CI_JOB_ID)?.parse().ok()?,
            name: self.var(variables::CI_JOB_NAME)?.to_owned(),
        })
    }

    /// Returns the user who started or retried the job.
    pub fn actor(self) -> Option<&'a str> {
        self.var(variables::GITLAB_USER_LOGIN)
    }
}

/// Returns true for a valid path of a project, which is safe in a URL.
pub(super) fn is_project(path: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part != "-"
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    path.contains('/') && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let variables = variables.iter();
        variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_instance_below_a_path_has_its_api_and_its_jobs_there() {
        let here = set(&[
            ("CI_SERVER_URL", "https://acme.example/git/"),
            ("CI_PROJECT_PATH", "acme/platform/konfig"),
            ("CI_JOB_ID", "77"),
        ]);
        let here = Environment::new(&here);
        assert_eq!(here.api_url().as_deref(), Some("https://acme.example/git/api/v4"));
        assert_eq!(
            here.job_url().as_deref(),
            Some("https://acme.example/git/acme/platform/konfig/-/jobs/77")
        );
        assert_eq!(Environment::new(&BTreeMap::new()).api_url(), None);
    }

    #[test]
    fn the_token_of_the_job_is_not_taken() {
        let job = set(&[("CI_JOB_TOKEN", "glcbt-64_x"), ("GITLAB_TOKEN", "")]);
        assert_eq!(Environment::new(&job).token(), None);
        let bot = set(&[("GITLAB_TOKEN", "glpat-x")]);
        assert_eq!(Environment::new(&bot).token(), Some("glpat-x"));
    }

    #[test]
    fn the_token_for_protected_branches_comes_first() {
        let both = set(&[
            ("GITLAB_TOKEN", "glpat-preview"),
            ("KONVERGE_GITLAB_TOKEN", "glpat-apply"),
        ]);
        assert_eq!(Environment::new(&both).token(), Some("glpat-apply"));
        // A job on an unprotected branch does not get this variable.
        let preview = set(&[("GITLAB_TOKEN", "glpat-preview"), ("KONVERGE_GITLAB_TOKEN", "")]);
        assert_eq!(Environment::new(&preview).token(), Some("glpat-preview"));
    }

    #[test]
    fn a_project_is_below_a_group_and_cannot_leave_it() {
        for path in ["acme/konfig", "acme/platform/team-1/konfig.git_x"] {
            assert!(is_project(path), "{path}");
        }
        for path in [
            "konfig",
            "acme/",
            "/konfig",
            "acme/../konfig",
            "acme/-/konfig",
            "a/b?c",
            "a/b c",
            "",
        ] {
            assert!(!is_project(path), "{path}");
        }
    }
}
