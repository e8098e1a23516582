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
    http: SecretHttpClient,
    token: Mutex<Option<(Instant, AccessToken)>>,
}

impl BearerClient {
    /// Creates a client. Its tokens are added to `secrets`, which masks them.
    pub(super) fn new(secrets: Secrets) -> Self {
        Self {
            http: SecretHttpClient::new(secrets),
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
        self.http.secrets.learn(&token.bearer);
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
        let words = |body: &Value| body["error"]["message"].as_str().map(str::to_owned);
        let answer = self.http.send(make).await?;
        answer.json(|answer| self.http.problem(answer, words))
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

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_token_is_kept_until_shortly_before_its_end_and_masked() {
        for (lifetime, logins) in [(3600, 1), (121, 1), (120, 3), (0, 3)] {
            let secrets = Secrets::new(HashKey::derive("k"));
            let (client, asked) = (BearerClient::new(secrets.clone()), Cell::new(0));
            for _ in 0..3 {
                let bearer = client.token(async || {
                    asked.set(asked.get() + 1);
                    Ok(AccessToken {
                        bearer: "the-bearer-of-this-run".to_owned(),
                        lifetime: Duration::from_secs(lifetime),
                    })
                });
                assert_eq!(bearer.await.unwrap(), "the-bearer-of-this-run");
            }
            assert_eq!(asked.get(), logins, "{lifetime} s");
            assert!(!secrets.mask("a the-bearer-of-this-run b").contains("the-bearer"));
        }
    }

    #[tokio::test]
    async fn a_refused_login_is_of_the_store_and_not_repeated_by_itself() {
        let client = BearerClient::new(Secrets::new(HashKey::derive("k")));
        let asked = Cell::new(0);
        let refused = client.token(async || {
            asked.set(asked.get() + 1);
            Err(CloudError::refused("a token", "no"))
        });
        assert!(refused.await.unwrap_err().is_of_store());
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_segment_stays_one_segment() {
        let url = |segments: &[&str]| url_of("https://a.example/base/", segments).unwrap().to_string();
        assert_eq!(url(&["secrets", "db"]), "https://a.example/base/secrets/db");
        assert_eq!(
            url(&["a/b?c#d", "ü"]),
            "https://a.example/base/a%2Fb%3Fc%23d/%C3%BC"
        );
        assert!(!url(&["..", "..", "other"]).contains(".."));
        assert!(url_of("mailto:a@example.com", &["x"]).is_err());
    }
}
