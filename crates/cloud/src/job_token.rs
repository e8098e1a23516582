//! The OIDC token of a GitHub job. It names the repository, branch and environment of the job.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use super::{
    CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
};

const REQUEST_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
const REQUEST_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

/// The identity of a job of GitHub Actions, for a service that trusts GitHub's tokens itself.
#[derive(Debug, Clone)]
pub struct JobIdentity {
    environment: CloudEnvironment,
    audience: Option<String>,
}

impl JobIdentity {
    /// The identity that these variables offer. Without an audience GitHub writes its own default.
    pub fn new(audience: Option<String>, environment: CloudEnvironment) -> Self {
        Self {
            environment,
            audience,
        }
    }

    /// A token; `None` in a job that may not ask for one.
    ///
    /// # Errors
    /// GitHub gives none.
    pub async fn token(&self) -> Result<Option<Zeroizing<String>>, CloudError> {
        let client = LoginClient::new()?;
        request(&client, &self.environment, self.audience.as_deref()).await
    }
}

/// Returns true if the job may ask for such a token (`id-token: write`).
pub(super) fn is_offered(environment: &CloudEnvironment) -> bool {
    environment.has(REQUEST_URL) && environment.has(REQUEST_TOKEN)
}

/// Requests a token for an audience. Returns `None` if the job lacks `id-token: write`.
pub(super) async fn request(
    client: &LoginClient,
    environment: &CloudEnvironment,
    audience: Option<&str>,
) -> Result<Option<Zeroizing<String>>, CloudError> {
    let (Some(url), Some(token)) = (environment.var(REQUEST_URL), environment.var(REQUEST_TOKEN)) else {
        return Ok(None);
    };
    let url: Option<Url> = url.parse().ok();
    let url = url.filter(|url| url.scheme() == "https" || addresses::is_this_machine(url));
    let Some(mut url) = url else {
        return Err(CloudError::setting(REQUEST_URL, "it is not an HTTPS address"));
    };
    if let Some(audience) = audience {
        url.query_pairs_mut().append_pair("audience", audience);
    }
    let what = "the job's own token";
    let answer = http_client::json(client.get(url).bearer_auth(token), what).await?;
    http_client::field(&answer, "value", what).map(|token| Some(Zeroizing::new(token)))
}

/// What a token says. Nothing rests on it: the service that trusts the issuer checks the signature.
pub(super) fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// The token in the file that a variable names, or else the one that GitHub gives.
pub(super) async fn from_file_or_github(
    client: &LoginClient,
    environment: &CloudEnvironment,
    variable: &str,
    audience: &str,
) -> Result<Option<Zeroizing<String>>, CloudError> {
    match environment.var(variable) {
        Some(path) => {
            let read = tokio::fs::read_to_string(path).await;
            let token = read.map_err(|error| CloudError::setting(variable, error.to_string()))?;
            Ok(Some(Zeroizing::new(token.trim().to_owned())))
        }
        None => request(client, environment, Some(audience)).await,
    }
}
