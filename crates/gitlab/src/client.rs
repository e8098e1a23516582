//! The API client of a project. `konverge_rest` decides about retries.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use http::HeaderName;
use konverge_base::{
    error::SharedError,
    model::{CommitId, InvalidId},
    retry::RetryPolicy,
};
use konverge_forge::{ForgeError, ForgeKind};
use konverge_rest::{
    Answer, ApiAddress, Exchange, HttpApi, RestApi, RestClient, TokenPermission, check_token, encoded,
};
use konverge_secrets::Secrets;
use secrecy::SecretString;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{answers, environment::OwnJob, note_target::NoteTarget};

/// The hint for an invalid address or token: where each comes from.
const HINT: &str = "CI_API_V4_URL is set by the runner; KONVERGE_GITLAB_TOKEN and GITLAB_TOKEN are CI/CD variables of the project";

/// The header for access tokens of a project, a group or a person.
const TOKEN: HeaderName = HeaderName::from_static("private-token");

/// The API of a GitLab project, with a token. Cheap to clone; clones share the cached facts.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) rest: RestClient,
    /// The path of the project: `group/name`, with any number of subgroups between.
    project: String,
    /// The web address of the server, for URLs of pipelines.
    server_url: String,
    token: SecretString,
    /// The job in which the client runs, if any.
    pub(super) job: Option<OwnJob>,
    /// The meaning of numbers in comment requests: merge requests or issues.
    pub(super) notes_of: NoteTarget,
    pub(super) learned: Arc<Learned>,
}

/// Facts that are requested once and then cached.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The account of the token's owner.
    pub(super) account: OnceCell<Account>,
    /// The merge request or issue of each note that was read or written, because GitLab's API needs it to address
    /// the note.
    pub(super) notes: Mutex<BTreeMap<u64, (NoteTarget, u64)>>,
}

/// The account of the token's owner.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Account {
    pub(super) username: String,
    /// The mail address in commits by the account.
    pub(super) commit_email: Option<String>,
}

/// GitLab's REST API with a token.
struct GitlabApi(HttpApi);

impl Client {
    /// Creates a client for a project (`group/name`) at the base address of an API (`https://HOST/api/v4`). Adds
    /// the token to `secrets`, so that it is masked everywhere.
    ///
    /// # Errors
    /// An invalid address or token.
    pub fn new(api_url: &str, project: &str, token: &str, secrets: Secrets) -> Result<Self, ForgeError> {
        secrets.learn(token);
        let address = ApiAddress::parse(api_url, HINT)?;
        check_token(token, HINT)?;
        let api = HttpApi::new(ForgeKind::Gitlab, address, (TOKEN, token))?;
        let server_url = api.server_url("/api/v4");
        Ok(Self {
            rest: RestClient::new(Arc::new(GitlabApi(api)), secrets),
            project: project.to_owned(),
            server_url,
            token: token.to_owned().into(),
            job: None,
            notes_of: NoteTarget::MergeRequest,
            learned: Arc::default(),
        })
    }

    /// Sets the retry policy, such as a short one for optional comments.
    #[must_use]
    pub fn with_patience(mut self, patience: RetryPolicy) -> Self {
        self.rest = self.rest.with_patience(patience);
        self
    }

    /// Sets the deadline of an attempt.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.rest = self.rest.with_deadline(deadline);
        self
    }

    /// Sets the token that is cancelled when the run is asked to stop. After that only seconds are left, so each call
    /// gets a short time limit.
    #[must_use]
    pub fn with_stop(mut self, asked: CancellationToken) -> Self {
        self.rest = self.rest.with_stop(asked);
        self
    }

    /// Sets the web address of the server, if it differs from the API's.
    #[must_use]
    pub fn with_server_url(mut self, server_url: &str) -> Self {
        server_url.trim_end_matches('/').clone_into(&mut self.server_url);
        self
    }

    /// Sets the job in which the client runs.
    #[must_use]
    pub fn with_job(mut self, job: Option<OwnJob>) -> Self {
        self.job = job;
        self
    }

    /// Returns the token, for git.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// Returns the web address of the server.
    pub(super) fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Returns the URL of a page of the project.
    pub(super) fn page_url(&self, rest: &str) -> String {
        format!("{}/{}/-{rest}", self.server_url, self.project)
    }

    /// Returns the path `/projects/ID`, followed by `rest`.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/projects/{}{rest}", encoded(&self.project))
    }

    /// Returns the account of the token's owner. Requested once and then cached.
    pub(super) async fn account(&self) -> Result<&Account, ForgeError> {
        let asked = || async {
            let account: Account = self.rest.get("/user", TokenPermission("the scope `api`")).await?;
            if account.username.is_empty() {
                return Err(malformed("GET /user", "it has no username"));
            }
            Ok(account)
        };
        self.learned.account.get_or_try_init(asked).await
    }
}

#[async_trait]
impl RestApi for GitlabApi {
    fn kind(&self) -> ForgeKind {
        ForgeKind::Gitlab
    }

    fn base_path(&self) -> &str {
        self.0.base_path()
    }

    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer, ForgeError> {
        self.0.send(exchange).await
    }

    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> Option<ForgeError> {
        answers::error_of(operation, answer, need)
    }
}

/// A user of GitLab.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct User {
    /// The name of the account.
    pub(super) username: String,
}

/// Creates the error for a response of unexpected form.
pub(super) fn malformed(operation: impl Into<String>, cause: impl Into<SharedError>) -> ForgeError {
    ForgeError::malformed(ForgeKind::Gitlab, operation, cause)
}

/// Parses a commit id in the response to a GET of `path`.
pub(super) fn commit_id(path: &str, sha: &str) -> Result<CommitId, ForgeError> {
    sha.parse()
        .map_err(|error: InvalidId| malformed(format!("GET {path}"), error))
}
