//! The API client of a project. `konverge_rest` decides about retries.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use http::HeaderName;
use konverge_forge::{ForgeKind, RequestOptions, Result};
use konverge_rest::{ApiAddress, HttpApi, RestClient, TokenPermission, check_token, encoded};
use konverge_secrets::Secrets;
use secrecy::SecretString;
use serde::Deserialize;
use tokio::sync::OnceCell;

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

impl Client {
    /// Creates a client for a project (`group/name`) at the base address of an API (`https://HOST/api/v4`). Adds
    /// the token to `secrets`, so that it is masked everywhere.
    ///
    /// # Errors
    /// An invalid address or token.
    pub fn new(api_url: &str, project: &str, token: &str, secrets: Secrets) -> Result<Self> {
        secrets.learn(token);
        let address = ApiAddress::parse(api_url, HINT)?;
        check_token(token, HINT)?;
        let api = HttpApi::new(ForgeKind::Gitlab, address, (TOKEN, token), answers::error_of)?;
        let server_url = api.server_url("/api/v4");
        Ok(Self {
            rest: RestClient::new(Arc::new(api), secrets),
            project: project.to_owned(),
            server_url,
            token: token.to_owned().into(),
            job: None,
            notes_of: NoteTarget::MergeRequest,
            learned: Arc::default(),
        })
    }

    /// Sets how the requests are sent.
    #[must_use]
    pub fn with_options(mut self, options: RequestOptions) -> Self {
        self.rest = self.rest.with_options(options);
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
    pub(super) async fn account(&self) -> Result<&Account> {
        let asked = || async {
            let account: Account = self.rest.get("/user", TokenPermission("the scope `api`")).await?;
            if account.username.is_empty() {
                return Err(self.rest.malformed("GET /user", "it has no username"));
            }
            Ok(account)
        };
        self.learned.account.get_or_try_init(asked).await
    }
}

/// A user of GitLab.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct User {
    /// The name of the account.
    pub(super) username: String,
}

#[cfg(test)]
pub(super) mod tests {
    use konverge_secrets::HashKey;

    use super::*;

    /// Creates a client for tests that send nothing.
    pub(crate) fn silent() -> Client {
        let secrets = Secrets::new(HashKey::random());
        Client::new(
            "https://gitlab.example/api/v4",
            "acme/platform",
            "a-token",
            secrets,
        )
        .unwrap()
    }
}
