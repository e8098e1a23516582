//! Requests to the JSON services of Google and Azure, with a token of a login that is kept while it is valid.

use std::time::Duration;

use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use zeroize::Zeroizing;

use super::{
    SecretProblem, cloud_login,
    http::{SecretHttpClient, service_url, unexpected},
};
use crate::{AccessToken, CloudError};
use konverge_secrets::Secrets;

/// A token is renewed this long before it ends.
const EARLY: Duration = Duration::from_secs(120);

/// Reads from one service.
pub(super) struct BearerClient {
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    token: Mutex<Option<(Instant, AccessToken)>>,
}

impl BearerClient {
    /// `secrets` learns the tokens.
    pub(super) fn new(secrets: Secrets) -> Self {
        Self {
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            token: Mutex::default(),
        }
    }

    /// The token, from the login if the last one ends soon.
    ///
    /// # Errors
    /// The job has no identity, or the cloud refuses it.
    pub(super) async fn token<F>(&self, log_in: impl FnMut() -> F) -> Result<String, SecretProblem>
    where
        F: Future<Output = Result<AccessToken, CloudError>>,
    {
        let mut kept = self.token.lock().await;
        if let Some((at, token)) = &*kept
            && at.elapsed() + EARLY < token.lifetime
        {
            return Ok(token.bearer.clone());
        }
        let token = cloud_login::with_retries(log_in).await?;
        self.secrets.learn(&token.bearer);
        let bearer = token.bearer.clone();
        *kept = Some((Instant::now(), token));
        Ok(bearer)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub(super) async fn get(&self, url: &url::Url, bearer: &str) -> Result<Value, SecretProblem> {
        self.send(|client| client.get(url.clone()).bearer_auth(bearer))
            .await
    }

    /// Posts a document, and reads the answer. It may be repeated.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub(super) async fn post(
        &self,
        url: &url::Url,
        bearer: &str,
        document: &Value,
    ) -> Result<Value, SecretProblem> {
        let body = Zeroizing::new(document.to_string());
        let make = |client: &reqwest::Client| {
            let request = client.post(url.clone()).bearer_auth(bearer);
            request
                .header("content-type", "application/json")
                .body(body.as_str().to_owned())
        };
        self.send(make).await
    }

    async fn send(
        &self,
        make: impl Fn(&reqwest::Client) -> reqwest::RequestBuilder,
    ) -> Result<Value, SecretProblem> {
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let answer = http.send(make).await?;
        if !answer.status.is_success() {
            return Err(http.problem(&answer, |body| {
                body["error"]["message"].as_str().map(str::to_owned)
            }));
        }
        serde_json::from_slice(&answer.body).map_err(|_| unexpected("the answer is not JSON"))
    }
}

/// A URL of a service: its address and these segments, each one escaped.
pub(super) fn url_of(address: &str, segments: &[&str]) -> Result<url::Url, SecretProblem> {
    let mut url = service_url(address)?;
    url.path_segments_mut()
        .map_err(|()| unexpected("its address is not a URL"))?
        .pop_if_empty()
        .extend(segments);
    Ok(url)
}
