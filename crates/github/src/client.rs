//! The API client: requests with our retry policy and a deadline for every call.
//!
//! No crate of GitHub's API: the retries of octocrab repeat a POST at once on any 5xx, its types fail on unknown
//! values, and it took a tenth of the time of all dependencies. Answers are parsed into small structs of ours.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{authenticated_user::AuthenticatedUser, error::GithubError, response};
use konverge_base::{
    error::chain,
    interrupt::{Interrupt, StopTimeouts},
    retry::{RetryDecision, RetryPolicy},
    secrets::{AddressParts, Secrets, credential_in, without_credentials},
};

/// The deadline of a call, without its retries.
const DEADLINE: Duration = Duration::from_secs(30);

/// The number of items per page, GitHub's maximum.
pub(super) const PAGE: usize = 100;

/// The maximum number of redirects.
const MOST_REDIRECTS: usize = 4;

/// The maximum number of pages.
const MOST_PAGES: usize = 100;

/// GitHub answers no request without it.
const USER_AGENT: &str = concat!("konverge/", env!("CARGO_PKG_VERSION"));

/// The version of the API whose answers we read. GitHub Enterprise Servers know no later one.
const API_VERSION: &str = "2022-11-28";

/// The API of a GitHub repository with a token. Cheap to clone; clones share the request count and the cached
/// answers.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Scheme and authority of the API: `https://api.github.com`.
    origin: String,
    repository: String,
    base_path: String,
    secrets: Secrets,
    patience: RetryPolicy,
    deadline: Duration,
    interrupt: Interrupt,
    pub(super) identity: AuthenticatedUser,
    requests: Arc<AtomicUsize>,
    known: Arc<Mutex<HashMap<String, (String, Response)>>>,
    /// The time that GitHub's last answer named, and when it came.
    server_time: Arc<Mutex<Option<(Timestamp, Instant)>>>,
}

/// A successful answer.
#[derive(Debug, Clone)]
pub(super) struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

/// The permission that a call needs, for its error messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenPermission(pub &'static str);

impl Client {
    /// A client for `owner/name` at the base address of an API (`https://api.github.com`,
    /// `https://HOST/api/v3`). `secrets` learns the token, so that it is masked everywhere.
    ///
    /// # Errors
    /// An unusable address or token.
    pub fn new(api_url: &str, repository: &str, token: &str, secrets: Secrets) -> Result<Self, GithubError> {
        let unusable = |message: String| GithubError::Runner {
            message,
            hint: "GITHUB_API_URL is set by the runner; GITHUB_TOKEN by the step's `env:`".to_owned(),
        };
        secrets.learn(token);
        let shown = without_credentials(api_url).escape_debug().to_string();
        if let Some(credential) = credential_in(api_url, AddressParts::default()) {
            return Err(unusable(format!(
                "the URL of the API, {shown}, holds {credential}"
            )));
        }
        let no_url = || unusable(format!("`{shown}` is not the URL of an API"));
        let base: http::Uri = api_url.trim_end_matches('/').parse().map_err(|_| no_url())?;
        let (Some(scheme), Some(server)) = (base.scheme_str(), base.authority()) else {
            return Err(no_url());
        };
        let unusable_token =
            || unusable("the token is empty, or holds white space or other unusual characters".to_owned());
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(unusable_token());
        }
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unusable_token())?;
        bearer.set_sensitive(true);
        let headers = [
            (
                header::ACCEPT,
                HeaderValue::from_static("application/vnd.github+json"),
            ),
            (header::AUTHORIZATION, bearer),
            (
                HeaderName::from_static("x-github-api-version"),
                HeaderValue::from_static(API_VERSION),
            ),
        ];
        let http = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .default_headers(HeaderMap::from_iter(headers))
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| GithubError::Runner {
                message: format!("no HTTP client: {}", chain(&error)),
                hint: "`konverge doctor`, in the same place, tries whatever a job needs".to_owned(),
            })?;
        Ok(Self {
            http,
            origin: format!("{scheme}://{server}"),
            repository: repository.to_owned(),
            base_path: base.path().trim_end_matches('/').to_owned(),
            secrets,
            patience: RetryPolicy {
                total: Duration::from_secs(120),
                ..RetryPolicy::default()
            },
            deadline: DEADLINE,
            interrupt: Interrupt::default(),
            identity: AuthenticatedUser::default(),
            requests: Arc::default(),
            known: Arc::default(),
            server_time: Arc::default(),
        })
    }

    /// Sets another retry policy, such as a short one for optional feedback.
    #[must_use]
    pub fn with_patience(mut self, patience: RetryPolicy) -> Self {
        self.patience = patience;
        self
    }

    /// Sets another deadline per call.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the token of the stop request: afterwards only seconds are left, and no call takes longer than
    /// that.
    #[must_use]
    pub fn with_stop(mut self, asked: CancellationToken) -> Self {
        self.interrupt = Interrupt::with(asked, StopTimeouts::GITHUB);
        self
    }

    /// The number of requests so far, including retries.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// The time now by GitHub's clock: that of its last answer, and what has passed since. `None` before the first answer.
    pub fn server_time(&self) -> Option<Timestamp> {
        let (said, came) = (*self.server_time.lock().expect("no panic while locked"))?;
        said.checked_add(came.elapsed()).ok()
    }

    fn note_server_time(&self, headers: &HeaderMap) {
        let said = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let said = said.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        if let Some(said) = said {
            *self.server_time.lock().expect("no panic while locked") =
                Some((said.timestamp(), Instant::now()));
        }
    }

    /// `/repos/owner/name` and a rest.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}{rest}", self.repository)
    }

    /// The owner of the repository.
    pub(super) fn owner(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }

    /// The address of a path: GraphQL is beside the REST API of a GitHub Enterprise Server (`/api/v3`), everything
    /// else in it.
    fn address(&self, path: &str) -> String {
        let base = match path {
            GRAPHQL => self.base_path.trim_end_matches("/v3"),
            _ => &self.base_path,
        };
        format!("{}{base}{path}", self.origin)
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<T, GithubError> {
        let answer = self.repeatable(Method::GET, path, None, need).await?;
        read(&format!("GET {path}"), &answer)
    }

    /// One page, and the path of the next one.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<(T, Option<String>), GithubError> {
        let answer = self.repeatable(Method::GET, path, None, need).await?;
        let next = response::next_page(&answer.headers, &self.base_path);
        Ok((read(&format!("GET {path}"), &answer)?, next))
    }

    /// All items of all pages.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<Vec<T>, GithubError> {
        self.list_in(path, need, |value| value).await
    }

    /// All items of all pages, where each page is an object that contains the items.
    pub(super) async fn list_in<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
        items: impl Fn(Value) -> Value,
    ) -> Result<Vec<T>, GithubError> {
        let mut all = Vec::new();
        let mut next = Some(path.to_owned());
        for _ in 0..MOST_PAGES {
            let Some(path) = next.take() else { return Ok(all) };
            let answer = self.repeatable(Method::GET, &path, None, need).await?;
            let page = items(read(&format!("GET {path}"), &answer)?);
            let page: Vec<T> = serde_json::from_value(page).map_err(|error| GithubError::Malformed {
                operation: format!("GET {path}"),
                cause: error.to_string(),
            })?;
            all.extend(page);
            next = response::next_page(&answer.headers, &self.base_path);
        }
        Err(GithubError::Malformed {
            operation: format!("GET {path}"),
            cause: format!("more than {MOST_PAGES} pages"),
        })
    }

    /// A request that may be repeated: reading, setting.
    pub(super) async fn repeatable(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Response, GithubError> {
        self.send_with_retries(GithubError::verdict, &method, path, body, need)
            .await
    }

    /// Retries by our policy, and gives up when a run that was asked to stop has no time left. Boxed: otherwise the compiler
    /// checks for each caller again that all below may move between threads.
    fn send_with_retries<'a>(
        &'a self,
        classify: fn(&GithubError) -> RetryDecision,
        method: &'a Method,
        path: &'a str,
        body: Option<&'a Value>,
        need: TokenPermission,
    ) -> BoxFuture<'a, Result<Response, GithubError>> {
        Box::pin(async move {
            let tries = self
                .patience
                .run(classify, || self.send_once(method.clone(), path, body, need));
            let done = self.interrupt.unless_silent(tries).await;
            done.unwrap_or_else(|stopped| {
                Err(GithubError::Unreachable {
                    operation: operation(method, path),
                    cause: stopped.to_string(),
                })
            })
        })
    }

    /// A PATCH, PUT or POST that sets something to a value, so that repeating it has no further effect.
    pub(super) async fn set<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        need: TokenPermission,
    ) -> Result<T, GithubError> {
        let body = to_json(body);
        let operation = format!("{method} {path}");
        let answer = self.repeatable(method, path, Some(&body), need).await?;
        read(&operation, &answer)
    }

    /// A request that must not be repeated and is optional: given up if it is unknown whether it was
    /// executed.
    pub(super) async fn at_most_once(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        need: TokenPermission,
    ) -> Result<(), GithubError> {
        let tried = self
            .send_with_retries(GithubError::verdict_once, &method, path, Some(body), need)
            .await;
        match tried {
            Err(error) if error.is_uncertain() => {
                tracing::warn!(%error, "not repeated");
                Ok(())
            }
            done => done.map(|_| ()),
        }
    }

    /// A POST that must not be repeated, and whose answer is needed.
    pub(super) async fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        need: TokenPermission,
    ) -> Result<T, GithubError> {
        let tried = self.send_with_retries(GithubError::verdict_once, &Method::POST, path, Some(body), need);
        read(&operation(&Method::POST, path), &tried.await?)
    }

    /// A POST that creates something: if it is unknown whether it was executed, `find` looks before the next
    /// attempt.
    pub(super) async fn create<T, F, Fut>(
        &self,
        path: &str,
        body: &impl Serialize,
        need: TokenPermission,
        find: F,
    ) -> Result<T, GithubError>
    where
        T: DeserializeOwned,
        F: Fn() -> Fut,
        Fut: Future<Output = Result<Option<T>, GithubError>>,
    {
        let body = to_json(body);
        let operation = format!("POST {path}");
        let mut wait = self.patience.first;
        for left in (0..self.patience.attempts).rev() {
            let tried = self
                .send_with_retries(GithubError::verdict_once, &Method::POST, path, Some(&body), need)
                .await
                .and_then(|answer| read(&operation, &answer));
            match tried {
                Err(error) if error.is_uncertain() => {
                    tracing::debug!(%error, "checking whether the request took effect");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(self.patience.longest);
                    if let Some(found) = find().await? {
                        return Ok(found);
                    }
                    if left == 0 {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        unreachable!("the last try returns")
    }

    /// One attempt. Follows the redirect of a renamed repository with the same method and only on the same
    /// API: the token goes nowhere else.
    async fn send_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Response, GithubError> {
        let mut path = path.to_owned();
        for _ in 0..MOST_REDIRECTS {
            let answer = self.send(method.clone(), &path, body, need).await?;
            match response::redirect_target(answer.status, &answer.headers, &self.base_path) {
                Some(next) => path = next,
                None => return Ok(answer),
            }
        }
        Err(GithubError::Malformed {
            operation: operation(&method, &path),
            cause: "too many redirects".to_owned(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Response, GithubError> {
        let operation = operation(&method, path);
        let unreachable = |cause: String| GithubError::Unreachable {
            operation: operation.clone(),
            cause: self.secrets.mask(&cause),
        };
        let known = (method == Method::GET)
            .then(|| {
                self.known
                    .lock()
                    .expect("no panic while locked")
                    .get(path)
                    .cloned()
            })
            .flatten();
        let mut request = self.http.request(method.clone(), self.address(path));
        if let Some((etag, _)) = &known {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let failed = |error: reqwest::Error| unreachable(chain(&error.without_url()));
        let exchange = async {
            let response = request.send().await.map_err(failed)?;
            Ok(Response {
                status: response.status(),
                headers: response.headers().clone(),
                body: response.text().await.map_err(failed)?,
            })
        };
        let answer = tokio::time::timeout(self.deadline, exchange)
            .await
            .map_err(|_| unreachable(format!("nothing within {} s", self.deadline.as_secs())))??;
        self.note_server_time(&answer.headers);
        if let (StatusCode::NOT_MODIFIED, Some((_, known))) = (answer.status, known) {
            return Ok(known);
        }
        if response::redirect_target(answer.status, &answer.headers, &self.base_path).is_some() {
            return Ok(answer);
        }
        if let Some(error) =
            response::error_of(&operation, answer.status, &answer.headers, &answer.body, need.0)
        {
            return Err(self.mask_error(error));
        }
        if method == Method::GET
            && let Some(etag) = answer.headers.get(header::ETAG).and_then(|e| e.to_str().ok())
        {
            let mut known = self.known.lock().expect("no panic while locked");
            known.insert(path.to_owned(), (etag.to_owned(), answer.clone()));
        }
        Ok(answer)
    }

    fn mask_error(&self, error: GithubError) -> GithubError {
        match error {
            GithubError::Refused {
                operation,
                status,
                message,
            } => GithubError::Refused {
                operation,
                status,
                message: self.secrets.mask(&message),
            },
            other => other,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("repository", &self.repository)
            .finish_non_exhaustive()
    }
}

/// A GitHub user.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct User {
    /// The account's name.
    pub login: String,
}

/// The name of a call in errors.
fn operation(method: &Method, path: &str) -> String {
    format!("{method} {}", path.split('?').next().unwrap_or_default())
}

fn to_json(body: &impl Serialize) -> Value {
    serde_json::to_value(body).expect("request bodies are plain structs")
}

fn read<T: DeserializeOwned>(operation: &str, answer: &Response) -> Result<T, GithubError> {
    let text = if answer.body.is_empty() {
        "null"
    } else {
        &answer.body
    };
    serde_json::from_str(text).map_err(|error| GithubError::Malformed {
        operation: operation.to_owned(),
        cause: error.to_string(),
    })
}

/// The path of GraphQL, which the client places beside the server's REST API.
pub(super) const GRAPHQL: &str = "/graphql";
