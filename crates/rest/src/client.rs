//! The client: requests with retries, a deadline for each attempt, and a check for the created object before a POST
//! is repeated.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::Instrument as _;

use konverge_base::{
    error::{SharedError, chain},
    model::{CommitId, InvalidId},
    retry::RetryDecision,
    spans,
};
use konverge_forge::{ForgeError, RequestOptions, Result};
use konverge_secrets::Secrets;

use crate::{Answer, Exchange, RestApi, TokenPermission, api::operation, links};

/// The maximum number of redirects of a request.
const MOST_REDIRECTS: usize = 4;

/// The maximum number of pages of a list.
const MOST_PAGES: usize = 100;

/// A client of an API. Cheap to clone; clones share the request counter and the cached responses.
#[derive(Clone)]
pub struct RestClient {
    pub(crate) api: Arc<dyn RestApi>,
    secrets: Secrets,
    options: RequestOptions,
    requests: Arc<AtomicUsize>,
    known: Arc<Mutex<HashMap<String, (String, Answer)>>>,
    /// The time in the server's last response, with the moment of its arrival.
    server_time: Arc<Mutex<Option<(Timestamp, Instant)>>>,
}

impl RestClient {
    /// Creates a client of an API. `secrets` masks errors.
    pub fn new(api: Arc<dyn RestApi>, secrets: Secrets) -> Self {
        Self {
            api,
            secrets,
            options: RequestOptions::default(),
            requests: Arc::default(),
            known: Arc::default(),
            server_time: Arc::default(),
        }
    }

    /// Sets how the requests are sent.
    #[must_use]
    pub fn with_options(self, options: RequestOptions) -> Self {
        Self { options, ..self }
    }

    /// Returns the number of requests so far, including retries.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the present time by the server's clock; `None` before the first response with a date.
    pub fn time_now(&self) -> Option<Timestamp> {
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

    /// Sends a GET, and parses the response.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, need: TokenPermission) -> Result<T> {
        let answer = self.repeatable(Method::GET, path, None, need).await?;
        self.read(&format!("GET {path}"), &answer)
    }

    /// Reads one page of a list. Also returns the path of the next page.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<(T, Option<String>)> {
        let answer = self.repeatable(Method::GET, path, None, need).await?;
        let next = links::next_page(&answer.headers, self.api.base_path());
        Ok((self.read(&format!("GET {path}"), &answer)?, next))
    }

    /// Reads the items of all pages.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, need: TokenPermission) -> Result<Vec<T>> {
        self.list_in(path, need, |value| value).await
    }

    /// Reads the items of all pages, where each page is an object that contains the items.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn list_in<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
        items: impl Fn(Value) -> Value,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut next = Some(path.to_owned());
        // The number of pages is limited, because a faulty server whose last page links to itself would cause an
        // endless loop.
        for _ in 0..MOST_PAGES {
            let Some(path) = next.take() else { return Ok(all) };
            let (page, following) = self.page(&path, need).await?;
            let page: Vec<T> = serde_json::from_value(items(page))
                .map_err(|error| self.malformed(format!("GET {path}"), error))?;
            all.extend(page);
            next = following;
        }
        Err(self.malformed(format!("GET {path}"), format!("more than {MOST_PAGES} pages")))
    }

    /// Sends a request that is safe to repeat: it only reads, or sets a value.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn repeatable(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Answer> {
        self.send_with_retries(ForgeError::retry, &method, path, body, need)
            .await
    }

    /// Retries by the policy, and gives up when the run must stop and has no time left. The future is boxed,
    /// because otherwise the compiler would check again for each caller that everything below is `Send`.
    fn send_with_retries<'a>(
        &'a self,
        classify: fn(&ForgeError) -> RetryDecision,
        method: &'a Method,
        path: &'a str,
        body: Option<&'a Value>,
        need: TokenPermission,
    ) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(async move {
            let tries = async {
                // The login has its own retries. If it fails, the request was certainly not sent.
                let retries = &self.options.retries;
                retries.run(ForgeError::retry, || self.log_in()).await?;
                let send = || self.send_once(method.clone(), path, body, need);
                retries.run(classify, send).await
            };
            let done = self.options.interrupt.unless_silent(tries).await;
            done.unwrap_or_else(|stopped| {
                Err(ForgeError::Unreachable {
                    forge: self.api.kind(),
                    operation: operation(method, path),
                    cause: stopped.into(),
                })
            })
        })
    }

    /// Sends a PATCH, PUT or POST that sets a value, so that a repetition has no further effect.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn set<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        need: TokenPermission,
    ) -> Result<T> {
        let body = to_json(body);
        let operation = format!("{method} {path}");
        let answer = self.repeatable(method, path, Some(&body), need).await?;
        self.read(&operation, &answer)
    }

    /// Sends an optional request that must not be executed twice. If it is unknown whether it was executed, returns
    /// without an error.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn at_most_once(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        need: TokenPermission,
    ) -> Result<()> {
        let tried = self
            .send_with_retries(ForgeError::retry_once, &method, path, Some(body), need)
            .await;
        match tried {
            Err(error) if error.is_uncertain() => {
                tracing::warn!(error = %chain(&error), "not repeated");
                Ok(())
            }
            done => done.map(|_| ()),
        }
    }

    /// Sends a POST that must not be executed twice, and whose response is needed.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        need: TokenPermission,
    ) -> Result<T> {
        let tried = self.send_with_retries(ForgeError::retry_once, &Method::POST, path, Some(body), need);
        self.read(&operation(&Method::POST, path), &tried.await?)
    }

    /// Sends a POST that creates an object, and converts the response with `convert`. If it is unknown whether the
    /// request was executed, `find` looks for the object before the next attempt.
    ///
    /// # Errors
    /// An error of the forge, or a response of another form.
    pub async fn create<R, T, F, Fut>(
        &self,
        path: &str,
        body: &impl Serialize,
        need: TokenPermission,
        convert: fn(R) -> T,
        find: F,
    ) -> Result<T>
    where
        R: DeserializeOwned,
        F: Fn() -> Fut,
        Fut: Future<Output = Result<Option<T>>>,
    {
        let body = to_json(body);
        let operation = format!("POST {path}");
        let retries = &self.options.retries;
        let mut wait = retries.first;
        for left in (0..retries.attempts).rev() {
            let tried = self
                .send_with_retries(ForgeError::retry_once, &Method::POST, path, Some(&body), need)
                .await
                .and_then(|answer| self.read(&operation, &answer));
            match tried {
                Err(error) if error.is_uncertain() => {
                    // The object may exist although no response arrived. A repeated POST would create a duplicate,
                    // so `find` looks for the object before each new attempt, and once more after the last one.
                    tracing::debug!(error = %chain(&error), "checking whether the request took effect");
                    tokio::time::sleep(wait)
                        .instrument(spans::wait("another try"))
                        .await;
                    wait = (wait * 2).min(retries.longest);
                    if let Some(found) = find().await? {
                        return Ok(found);
                    }
                    if left == 0 {
                        return Err(error);
                    }
                }
                done => return done.map(convert),
            }
        }
        unreachable!("the last try returns")
    }

    async fn log_in(&self) -> Result<()> {
        self.in_time("log in", self.api.log_in()).await
    }

    /// Waits for the API, at most until the deadline of an attempt, and masks its error.
    async fn in_time<T>(&self, operation: &str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = tokio::time::timeout(self.options.deadline, asked).await;
        answer
            .unwrap_or_else(|_| {
                Err(ForgeError::Unreachable {
                    forge: self.api.kind(),
                    operation: operation.to_owned(),
                    cause: format!("nothing within {} s", self.options.deadline.as_secs()).into(),
                })
            })
            .map_err(|error| self.mask_error(error))
    }

    /// Makes one attempt. Follows the redirect of a renamed repository with the same method, but only within the
    /// same API, so that the token goes nowhere else.
    async fn send_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Answer> {
        let mut path = path.to_owned();
        for _ in 0..MOST_REDIRECTS {
            let answer = self.send(method.clone(), &path, body, need).await?;
            match links::redirect_target(answer.status, &answer.headers, self.api.base_path()) {
                Some(next) => path = next,
                None => return Ok(answer),
            }
        }
        Err(self.malformed(operation(&method, &path), "too many redirects"))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        need: TokenPermission,
    ) -> Result<Answer> {
        let known = (method == Method::GET)
            .then(|| {
                let known = self.known.lock().expect("no panic while locked");
                known.get(path).cloned()
            })
            .flatten();
        let exchange = Exchange {
            method: &method,
            path,
            etag: known.as_ref().map(|(etag, _)| etag.as_str()),
            body,
        };
        let operation = exchange.operation();
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = self.in_time(&operation, self.api.send(exchange)).await?;
        self.note_server_time(&answer.headers);
        // With `304 Not Modified` the cached body is still valid. On GitHub such a response does not count against
        // the rate limit.
        if let (StatusCode::NOT_MODIFIED, Some((_, known))) = (answer.status, known) {
            return Ok(known);
        }
        if links::redirect_target(answer.status, &answer.headers, self.api.base_path()).is_some() {
            return Ok(answer);
        }
        if !answer.status.is_success() && answer.status != StatusCode::NOT_MODIFIED {
            return Err(self.mask_error(self.api.error_of(&operation, &answer, need)));
        }
        if method == Method::GET
            && let Some(etag) = answer.headers.get(header::ETAG).and_then(|e| e.to_str().ok())
        {
            let mut known = self.known.lock().expect("no panic while locked");
            known.insert(path.to_owned(), (etag.to_owned(), answer.clone()));
        }
        Ok(answer)
    }

    fn mask_error(&self, mut error: ForgeError) -> ForgeError {
        match &mut error {
            ForgeError::Refused { message, .. } => *message = self.secrets.mask(message),
            ForgeError::Unreachable { cause, .. } => {
                let said = chain(&**cause);
                let masked = self.secrets.mask(&said);
                // A cause that contains a secret is replaced by its masked text, because its own chain of errors
                // would still contain the secret.
                if masked != said {
                    *cause = masked.into();
                }
            }
            _ => {}
        }
        error
    }

    /// Parses the body of a response.
    ///
    /// # Errors
    /// The body is HTML, or JSON of another form.
    pub fn read<T: DeserializeOwned>(&self, operation: &str, answer: &Answer) -> Result<T> {
        let text = match answer.body.trim_start() {
            "" => "null",
            text if text.starts_with('<') => {
                let cause = "it is HTML, such as the page of a proxy or of a login";
                return Err(self.malformed(operation, cause));
            }
            text => text,
        };
        serde_json::from_str(text).map_err(|error| self.malformed(operation, error))
    }

    /// Parses a commit id in the response to a GET of `path`.
    ///
    /// # Errors
    /// It is no id of a commit.
    pub fn commit_id(&self, path: &str, sha: &str) -> Result<CommitId> {
        sha.parse()
            .map_err(|error: InvalidId| self.malformed(format!("GET {path}"), error))
    }

    /// Creates the error for a response of unexpected form.
    pub fn malformed(&self, operation: impl Into<String>, cause: impl Into<SharedError>) -> ForgeError {
        ForgeError::malformed(self.api.kind(), operation, cause)
    }
}

impl std::fmt::Debug for RestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestClient")
            .field("forge", &self.api.kind())
            .finish_non_exhaustive()
    }
}

fn to_json(body: &impl Serialize) -> Value {
    serde_json::to_value(body).expect("request bodies are plain structs")
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use konverge_forge::ForgeKind;
    use konverge_secrets::HashKey;

    use super::*;

    /// What stands between us and the API.
    struct Proxy;

    #[async_trait]
    impl RestApi for Proxy {
        fn kind(&self) -> ForgeKind {
            ForgeKind::Gitea
        }

        fn base_path(&self) -> &str {
            "/git/api/v1"
        }

        async fn send(&self, exchange: Exchange<'_>) -> Result<Answer> {
            let redirected = exchange.path == "/old";
            let mut headers = HeaderMap::new();
            if redirected {
                let to = header::HeaderValue::from_static("https://elsewhere/git/api/v1/new");
                headers.insert(header::LOCATION, to);
            }
            Ok(Answer {
                status: if redirected {
                    StatusCode::FOUND
                } else {
                    StatusCode::OK
                },
                headers,
                body: match exchange.path {
                    "/new" => "[1]".to_owned(),
                    _ => "\n<!DOCTYPE html><title>Sign in</title>".to_owned(),
                },
            })
        }

        fn error_of(&self, operation: &str, answer: &Answer, _: TokenPermission) -> ForgeError {
            answer.error(self.kind(), operation, "", "")
        }
    }

    fn client() -> RestClient {
        RestClient::new(Arc::new(Proxy), Secrets::new(HashKey::random()))
    }

    #[tokio::test]
    async fn a_page_instead_of_an_answer_is_named() {
        let asked = client().get::<Value>("/user?a=b", TokenPermission("read")).await;
        let said = chain(&asked.unwrap_err());
        assert_eq!(
            said,
            "Gitea's answer to GET /user?a=b cannot be read: it is HTML, such as the page of a proxy or of a login"
        );
    }

    /// A server that nothing comes from.
    struct Silence;

    #[async_trait]
    impl RestApi for Silence {
        fn kind(&self) -> ForgeKind {
            ForgeKind::Gitea
        }

        fn base_path(&self) -> &str {
            ""
        }

        async fn send(&self, exchange: Exchange<'_>) -> Result<Answer> {
            Err(ForgeError::Unreachable {
                forge: self.kind(),
                operation: exchange.operation(),
                cause: std::io::Error::other(exchange.path.to_owned()).into(),
            })
        }

        fn error_of(&self, operation: &str, answer: &Answer, _: TokenPermission) -> ForgeError {
            answer.error(self.kind(), operation, "", "")
        }
    }

    #[tokio::test]
    async fn a_cause_is_kept_and_one_that_says_a_secret_is_masked() {
        let secrets = Secrets::new(HashKey::random());
        secrets.learn("a-token-of-this-run");
        let client = RestClient::new(Arc::new(Silence), secrets).with_options(RequestOptions::once());
        let cause = async |path: &str| match client.get::<Value>(path, TokenPermission("read")).await {
            Err(ForgeError::Unreachable { cause, .. }) => cause,
            other => panic!("{other:?}"),
        };
        let kept = cause("/user").await;
        assert_eq!(chain(&*kept), "/user");
        assert!(kept.is::<std::io::Error>());
        let masked = cause("/a-token-of-this-run").await;
        assert!(!format!("{masked:?}").contains("of-this-run"), "{masked:?}");
        assert!(!masked.is::<std::io::Error>());
    }

    #[tokio::test]
    async fn a_redirect_is_followed_on_the_same_api_alone() {
        let asked = client().get::<Vec<u32>>("/old", TokenPermission("read")).await;
        assert_eq!(asked.unwrap(), [1]);
    }
}
