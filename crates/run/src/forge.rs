//! Connects a run to its forge. This is the only file that knows which forges exist; all others use the traits of
//! `konverge_forge`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use konverge_actions::{Dialect, Runner, workflow_commands};
use konverge_base::{
    interrupt::{Interrupt, StopTimeouts},
    model::check_run::Annotation,
};
use konverge_forge::{CiJob, DetectedForge, Forge, ForgeError, ForgeKind, RepositoryPages, RequestOptions};
use konverge_github::Environment;
use konverge_gitlab::PipelineJob;
use konverge_repo::git::GitCredentials;

use crate::RunContext;

/// Opens the CI job that the environment describes.
///
/// # Errors
/// The environment has the variables of two forges, or of no job.
pub fn open_job(env: &BTreeMap<String, String>) -> Result<Arc<dyn CiJob>, ForgeError> {
    let dialect = match forge_kind(env)? {
        ForgeKind::Github => Dialect::Github,
        ForgeKind::Gitea => Dialect::Gitea,
        ForgeKind::Gitlab => return Ok(Arc::new(PipelineJob::from_env(env)?)),
    };
    let env = env.clone().into_iter().collect();
    Ok(Arc::new(Runner::from_env(&env, dialect)?))
}

/// Opens the CI job that the environment describes; `None` if it is no job whose event can be read.
///
/// # Errors
/// See [`open_job`].
pub fn current_job(env: &BTreeMap<String, String>) -> Result<Option<Arc<dyn CiJob>>, ForgeError> {
    match DetectedForge::from_env(env)?.map(|detected| detected.kind) {
        None => Ok(None),
        Some(_) => open_job(env).map(Some),
    }
}

/// Formats annotations as lines for the runner. The runners of GitHub and Gitea read the same lines; the runner of
/// GitLab shows none.
pub fn annotations(notes: &[Annotation]) -> Vec<String> {
    workflow_commands::annotations(notes)
}

/// Connects to a repository at the forge, with the token in the environment; `None` without a token.
///
/// # Errors
/// The environment has the variables of two forges, or an unusable address or token.
pub fn connect(run: &RunContext, repository: &str) -> Result<Option<Arc<dyn Forge>>, ForgeError> {
    let options = RequestOptions {
        interrupt: Interrupt::with(run.cancel.clone(), StopTimeouts::FORGE),
        ..RequestOptions::default()
    };
    Ok(client(run, repository)?.map(|client| client.into_forge(options)))
}

/// Connects for queries about runs, each of which names its own repository. Each request is sent only once, with this
/// deadline.
///
/// # Errors
/// See [`connect`].
pub fn connect_to_runs(run: &RunContext, deadline: Duration) -> Result<Option<Arc<dyn Forge>>, ForgeError> {
    let options = RequestOptions {
        deadline,
        ..RequestOptions::once()
    };
    let client = client(run, run.forge_repository().unwrap_or_default())?;
    Ok(client.map(|client| client.into_forge(options)))
}

/// The client of a forge.
enum Client {
    Github(konverge_github::Client),
    Gitea(konverge_gitea::Client),
    Gitlab(konverge_gitlab::Client),
}

impl Client {
    fn into_forge(self, options: RequestOptions) -> Arc<dyn Forge> {
        match self {
            Self::Github(client) => Arc::new(client.with_options(options)),
            Self::Gitea(client) => Arc::new(client.with_options(options)),
            Self::Gitlab(client) => Arc::new(client.with_options(options)),
        }
    }
}

fn client(run: &RunContext, repository: &str) -> Result<Option<Client>, ForgeError> {
    match forge_kind(&run.env)? {
        ForgeKind::Github => {
            let here = Environment::new(&run.env);
            let Some(login) = here.login()? else {
                return Ok(None);
            };
            let client =
                konverge_github::Client::new(here.api_url(), repository, login, run.secrets.clone())?;
            Ok(Some(Client::Github(match here.server_url() {
                Some(server) => client.with_server_url(server),
                None => client,
            })))
        }
        ForgeKind::Gitea => {
            let here = konverge_gitea::Environment::new(&run.env);
            let Some(token) = here.token() else {
                return Ok(None);
            };
            let address = here.api_url().ok_or_else(|| ForgeError::Runner {
                message: "neither GITHUB_API_URL nor GITHUB_SERVER_URL says where Gitea is".to_owned(),
                hint: "the runner sets these variables; in a `container:` job pass the GITHUB_ variables on"
                    .to_owned(),
            })?;
            let client = konverge_gitea::Client::new(&address, repository, token, run.secrets.clone())?;
            Ok(Some(Client::Gitea(match here.server_url() {
                Some(server) => client.with_server_url(server),
                None => client,
            })))
        }
        ForgeKind::Gitlab => {
            let here = konverge_gitlab::Environment::new(&run.env);
            let Some(token) = here.token() else {
                return Ok(None);
            };
            let address = here.api_url().ok_or_else(|| ForgeError::Runner {
                message: "neither CI_API_V4_URL nor CI_SERVER_URL says where GitLab is".to_owned(),
                hint: "the runner sets these variables; in a container of its own pass the CI_ variables on"
                    .to_owned(),
            })?;
            let client = konverge_gitlab::Client::new(&address, repository, token, run.secrets.clone())?
                .with_job(here.own_job());
            Ok(Some(Client::Gitlab(match here.server_url() {
                Some(server) => client.with_server_url(server),
                None => client,
            })))
        }
    }
}

/// Returns the kind of the forge in the environment. Outside a job, variables count as GitHub's.
fn forge_kind(env: &BTreeMap<String, String>) -> Result<ForgeKind, ForgeError> {
    let detected = DetectedForge::from_env(env)?;
    Ok(detected.map_or(ForgeKind::Github, |detected| detected.kind))
}

/// The variables of a Gitea runner have the names of GitHub's, so both are read in the same way.
impl RunContext {
    /// Returns true if the environment has credentials for the forge. Only the first request shows whether the forge
    /// accepts them.
    pub fn has_forge_login(&self) -> bool {
        match self.forge_kind() {
            ForgeKind::Github => !matches!(Environment::new(&self.env).login(), Ok(None)),
            ForgeKind::Gitea => konverge_gitea::Environment::new(&self.env).token().is_some(),
            ForgeKind::Gitlab => konverge_gitlab::Environment::new(&self.env).token().is_some(),
        }
    }

    /// Returns the credentials for git at the forge; `None` if there are none.
    ///
    /// # Errors
    /// The environment names a GitHub App, but it gets no token.
    pub async fn git_credentials(&self) -> Result<Option<GitCredentials>, ForgeError> {
        let (user, token) = match client(self, self.forge_repository().unwrap_or_default())? {
            None => return Ok(None),
            Some(Client::Github(client)) => (konverge_github::GIT_USER, client.token().await?),
            Some(Client::Gitea(client)) => (konverge_gitea::GIT_USER, client.token().clone()),
            Some(Client::Gitlab(client)) => (konverge_gitlab::GIT_USER, client.token().clone()),
        };
        Ok(Some(GitCredentials::new(user, token)))
    }

    /// Returns the credentials with which a command fetches commits that a shallow clone lacks: the token in the
    /// environment variable of the forge, and no other.
    pub(crate) fn clone_credentials(&self) -> Option<GitCredentials> {
        let (user, token) = match self.forge_kind() {
            ForgeKind::Github => (
                konverge_github::GIT_USER,
                Environment::new(&self.env).variable_token()?,
            ),
            ForgeKind::Gitea => {
                let here = konverge_gitea::Environment::new(&self.env);
                (konverge_gitea::GIT_USER, here.variable_token()?)
            }
            ForgeKind::Gitlab => {
                let here = konverge_gitlab::Environment::new(&self.env);
                (konverge_gitlab::GIT_USER, here.token()?)
            }
        };
        Some(GitCredentials::new(user, token.to_owned().into()))
    }

    /// Returns the kind of the forge in the environment. If the environment has the variables of two forges, it counts
    /// as GitHub here; opening a client then fails.
    fn forge_kind(&self) -> ForgeKind {
        forge_kind(&self.env).unwrap_or(ForgeKind::Github)
    }

    /// Returns the variables of GitLab, in a GitLab job.
    fn gitlab(&self) -> Option<konverge_gitlab::Environment<'_>> {
        (self.forge_kind() == ForgeKind::Gitlab).then(|| konverge_gitlab::Environment::new(&self.env))
    }

    /// Returns the path of the repository at the forge, `owner/name`, if the environment names it.
    pub fn forge_repository(&self) -> Option<&str> {
        match self.gitlab() {
            Some(here) => here.project(),
            None => Environment::new(&self.env).repository(),
        }
    }

    /// Returns the web pages of the repository, if the environment names it.
    pub fn repository_pages(&self) -> Option<RepositoryPages> {
        let server = match self.gitlab() {
            Some(here) => here.server_url(),
            None => Environment::new(&self.env).server_url(),
        };
        RepositoryPages::new(self.forge_kind(), server?, self.forge_repository()?)
    }

    /// Returns the number of the run at the forge; 0 outside a job.
    pub fn job_run(&self) -> u64 {
        let number = match self.gitlab() {
            Some(here) => here.pipeline(),
            None => Environment::new(&self.env).run_id(),
        };
        number.unwrap_or_default()
    }

    /// Returns the attempt of the run at the forge; 0 outside a job.
    pub fn job_attempt(&self) -> u32 {
        match self.gitlab() {
            // GitLab has no variable for the attempt, so a job counts as its first one.
            Some(here) => u32::from(here.pipeline().is_some()),
            None => Environment::new(&self.env).run_attempt().unwrap_or_default(),
        }
    }

    /// Returns the URL of this attempt of the run; `None` outside a job.
    pub fn job_url(&self) -> Option<String> {
        match self.forge_kind() {
            ForgeKind::Github => Environment::new(&self.env).attempt_url(),
            ForgeKind::Gitea => konverge_gitea::Environment::new(&self.env).run_url(),
            ForgeKind::Gitlab => konverge_gitlab::Environment::new(&self.env).job_url(),
        }
    }

    /// Returns the location of the run: the URL of this attempt in a job, otherwise user and host.
    pub fn url(&self) -> String {
        self.job_url().unwrap_or_else(|| {
            format!(
                "{}@{} (process {})",
                self.actor(),
                self.host(),
                std::process::id()
            )
        })
    }

    /// Returns the user who started the run.
    pub fn actor(&self) -> String {
        let started = match self.gitlab() {
            Some(here) => here.actor(),
            None => Environment::new(&self.env).actor(),
        };
        started.map_or_else(|| self.account(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::run;

    const GITHUB: [(&str, &str); 6] = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_SERVER_URL", "https://github.com"),
        ("GITHUB_REPOSITORY", "acme/konfig"),
        ("GITHUB_RUN_ID", "42"),
        ("GITHUB_RUN_ATTEMPT", "2"),
        ("GITHUB_ACTOR", "ada"),
    ];
    const GITLAB: [(&str, &str); 5] = [
        ("GITLAB_CI", "true"),
        ("CI_SERVER_URL", "https://gitlab.example"),
        ("CI_PROJECT_PATH", "acme/konfig"),
        ("CI_PIPELINE_ID", "7"),
        ("GITLAB_USER_LOGIN", "bob"),
    ];

    #[test]
    fn a_run_is_that_of_its_forge() {
        let github = run(&GITHUB);
        assert_eq!((github.job_run(), github.job_attempt()), (42, 2));
        assert_eq!(
            (github.forge_repository(), github.actor().as_str()),
            (Some("acme/konfig"), "ada")
        );
        assert_eq!(
            github.job_url().as_deref(),
            Some("https://github.com/acme/konfig/actions/runs/42/attempts/2")
        );
        assert_eq!(github.url(), github.job_url().unwrap());
        let gitlab = run(&GITLAB);
        assert_eq!((gitlab.job_run(), gitlab.job_attempt()), (7, 1));
        assert_eq!(
            (gitlab.forge_repository(), gitlab.actor().as_str()),
            (Some("acme/konfig"), "bob")
        );
        let own = run(&[("USER", "eve"), ("HOSTNAME", "laptop")]);
        assert_eq!((own.job_run(), own.job_attempt(), own.job_url()), (0, 0, None));
        assert!(own.url().starts_with("eve@laptop (process "), "{}", own.url());
        assert!(own.repository_pages().is_none());
    }

    /// A token of one forge must not be sent to another one.
    #[test]
    fn the_variables_of_two_forges_open_none() {
        let both = run(&[
            &GITHUB[..],
            &GITLAB[..],
            &[("GITHUB_TOKEN", "ghs_x"), ("GITLAB_TOKEN", "glpat-x")],
        ]
        .concat());
        assert!(connect(&both, "acme/konfig").is_err());
        assert!(open_job(&both.env).is_err());
        assert!(current_job(&both.env).is_err());
        assert!(matches!(current_job(&run(&[]).env), Ok(None)));
    }

    #[tokio::test]
    async fn without_a_token_there_is_no_login() {
        for (forge, token) in [(&GITHUB[..], "GITHUB_TOKEN"), (&GITLAB[..], "GITLAB_TOKEN")] {
            let without = run(forge);
            assert!(
                !without.has_forge_login() && without.clone_credentials().is_none(),
                "{token}"
            );
            assert!(connect(&without, "acme/konfig").unwrap().is_none());
            assert!(without.git_credentials().await.unwrap().is_none());
            let empty = run(&[forge, &[(token, "")]].concat());
            assert!(!empty.has_forge_login(), "{token}");
            let with = run(&[forge, &[(token, "the-token-of-this-job")]].concat());
            assert!(
                with.has_forge_login() && with.clone_credentials().is_some(),
                "{token}"
            );
            assert!(connect(&with, "acme/konfig").unwrap().is_some());
            assert!(
                !with
                    .secrets
                    .mask("a the-token-of-this-job b")
                    .contains("the-token"),
                "{token}"
            );
        }
    }

    #[tokio::test]
    async fn half_an_app_is_an_error_and_not_no_login() {
        let half = run(&[&GITHUB[..], &[("KONVERGE_GITHUB_APP_ID", "12")]].concat());
        assert!(half.has_forge_login(), "the first request says what is wrong");
        assert!(connect(&half, "acme/konfig").is_err());
    }

    #[tokio::test]
    async fn a_forge_whose_address_nobody_says_is_not_guessed() {
        for (forge, token, variable) in [
            ("GITEA_ACTIONS", "GITEA_TOKEN", "GITHUB_API_URL"),
            ("GITLAB_CI", "GITLAB_TOKEN", "CI_API_V4_URL"),
        ] {
            let lost = run(&[(forge, "true"), (token, "the-token-of-this-job")]);
            let Err(refused) = connect(&lost, "acme/konfig") else {
                panic!("{forge}: there is no address")
            };
            assert!(refused.to_string().contains(variable), "{refused}");
        }
    }
}
