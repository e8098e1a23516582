//! The OIDC token of a job, which the job requests from its runner. Its claims name the repository, branch
//! and environment of the job.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use zeroize::Zeroizing;

use konverge_forge::IdentityEndpoint;

use super::{
    CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
};

/// The identity of a job, for services that trust the OIDC tokens of the forge themselves.
#[derive(Debug, Clone)]
pub struct JobIdentity {
    environment: CloudEnvironment,
    audience: Option<String>,
}

impl JobIdentity {
    /// Creates the identity from environment variables. Without an audience, the forge uses its default.
    pub fn new(audience: Option<String>, environment: CloudEnvironment) -> Self {
        Self {
            environment,
            audience,
        }
    }

    /// Requests a token; `None` in a job that may not request one.
    ///
    /// # Errors
    /// The runner returns no token.
    pub async fn token(&self) -> Result<Option<Zeroizing<String>>, CloudError> {
        let client = LoginClient::new()?;
        request(&client, &self.environment, self.audience.as_deref()).await
    }
}

/// Returns true if the job may request a token (`id-token: write`).
pub(super) fn is_offered(environment: &CloudEnvironment) -> bool {
    IdentityEndpoint::find(|name| environment.var(name)).is_some()
}

/// Requests a token for an audience. Returns `None` if the job lacks `id-token: write`.
pub(super) async fn request(
    client: &LoginClient,
    environment: &CloudEnvironment,
    audience: Option<&str>,
) -> Result<Option<Zeroizing<String>>, CloudError> {
    let Some(endpoint) = IdentityEndpoint::find(|name| environment.var(name)) else {
        return Ok(None);
    };
    let mut url = addresses::encrypted(IdentityEndpoint::VARIABLE, endpoint.url)?;
    if let Some(audience) = audience {
        url.query_pairs_mut().append_pair("audience", audience);
    }
    let what = "the job's own token";
    let answer = http_client::json(client.get(url).bearer_auth(endpoint.bearer), what).await?;
    http_client::field(&answer, "value", what).map(|token| Some(Zeroizing::new(token)))
}

/// Returns the claims of a token without checking its signature: the service that trusts the issuer checks
/// it.
pub(super) fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// Returns the token in the file that a variable names, or else a token from the runner.
pub(super) async fn from_file_or_runner(
    client: &LoginClient,
    environment: &CloudEnvironment,
    variable: &str,
    audience: &str,
) -> Result<Option<Zeroizing<String>>, CloudError> {
    match environment.var(variable) {
        Some(path) => {
            let read = tokio::fs::read_to_string(path).await;
            let token = read.map_err(|error| CloudError::setting(variable, error))?;
            Ok(Some(Zeroizing::new(token.trim().to_owned())))
        }
        None => request(client, environment, Some(audience)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(url: &str) -> CloudEnvironment {
        CloudEnvironment::default()
            .with("ACTIONS_ID_TOKEN_REQUEST_URL", url)
            .with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "bearer")
    }

    #[tokio::test]
    async fn a_job_without_the_permission_has_no_token() {
        let client = LoginClient::new().unwrap();
        for name in ["ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"] {
            let environment = offered("https://runner.example/").without(&[name]);
            assert!(!is_offered(&environment), "without {name}");
            assert_eq!(request(&client, &environment, None).await, Ok(None));
        }
    }

    #[tokio::test]
    async fn the_bearer_of_the_runner_is_sent_over_https_alone() {
        let client = LoginClient::new().unwrap();
        for url in ["http://runner.example/", "ftp://runner.example/", "no URL"] {
            let error = request(&client, &offered(url), Some("a")).await.unwrap_err();
            assert!(matches!(error, CloudError::Setting { .. }), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn a_token_file_goes_before_the_runner() {
        let client = LoginClient::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "of-the-file\n").unwrap();
        let environment =
            offered("http://runner.example/").with("TOKEN_FILE", path.display().to_string().as_str());
        let read = from_file_or_runner(&client, &environment, "TOKEN_FILE", "a").await;
        assert_eq!(read.unwrap().unwrap().as_str(), "of-the-file");
        std::fs::remove_file(path).unwrap();
        let error = from_file_or_runner(&client, &environment, "TOKEN_FILE", "a")
            .await
            .unwrap_err();
        assert!(
            error.to_string().starts_with("TOKEN_FILE"),
            "not the runner: {error}"
        );
    }

    #[test]
    fn claims_are_read_of_a_whole_token_alone() {
        let payload = URL_SAFE_NO_PAD.encode(r#"{"sub": "repo:acme/konfig"}"#);
        assert_eq!(
            claims(&format!("h.{payload}.s")).unwrap()["sub"],
            "repo:acme/konfig"
        );
        for wrong in ["", "h", "h.", "h.!!.s", "h.YWJj.s"] {
            assert_eq!(claims(wrong), None, "{wrong}");
        }
    }
}
