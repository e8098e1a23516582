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
        Ok(match client(self, self.forge_repository().unwrap_or_default())? {
            None => None,
            Some(Client::Github(client)) => Some(GitCredentials::new(
                konverge_github::GIT_USER,
                client.token().await?,
            )),
            Some(Client::Gitea(client)) => Some(GitCredentials::new(
                konverge_gitea::GIT_USER,
                client.token().clone(),
            )),
            Some(Client::Gitlab(client)) => Some(GitCredentials::new(
                konverge_gitlab::GIT_USER,
                client.token().clone(),
            )),
        })
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
