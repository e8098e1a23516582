//! Requests to the JSON services of Google and Azure with the token of a login, which is cached while it is
//! valid.

use std::time::Duration;

use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use zeroize::Zeroizing;

use super::{
    SecretProblem,
    http::{SecretHttpClient, service_url, unexpected},
};
use crate::{AccessToken, CloudError, shared_credentials::with_retries};
use konverge_secrets::Secrets;

/// A token is renewed this long before it expires.
const EARLY: Duration = Duration::from_secs(120);

/// Sends requests to one service.
pub(super) struct BearerClient {
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    token: Mutex<Option<(Instant, AccessToken)>>,
}

impl BearerClient {
    /// Creates a client. Its tokens are added to `secrets`, which masks them.
    pub(super) fn new(secrets: Secrets) -> Self {
        Self {
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            token: Mutex::default(),
        }
    }

    /// Returns the cached token, or a new one from the login if it expires soon.
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
        let token = with_retries(log_in).await?;
        self.secrets.learn(&token.bearer);
        let bearer = token.bearer.clone();
        *kept = Some((Instant::now(), token));
        Ok(bearer)
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    /// The service does not respond, or refuses the request.
    pub(super) async fn get(&self, url: &url::Url, bearer: &str) -> Result<Value, SecretProblem> {
        self.send(|client| client.get(url.clone()).bearer_auth(bearer))
            .await
    }

    /// Posts a JSON document and returns the JSON of the response. The request must be safe to repeat.
    ///
    /// # Errors
    /// The service does not respond, or refuses the request.
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
        let words = |body: &Value| body["error"]["message"].as_str().map(str::to_owned);
        let answer = http.send(make).await?;
        answer.json(|answer| http.problem(answer, words))
    }
}

/// Returns a URL below the address of a service. Each segment is percent-encoded.
pub(super) fn url_of(address: &str, segments: &[&str]) -> Result<url::Url, SecretProblem> {
    let mut url = service_url(address)?;
    url.path_segments_mut()
        .map_err(|()| unexpected("its address is not a URL"))?
        .pop_if_empty()
        .extend(segments);
    Ok(url)
}
