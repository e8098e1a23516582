//! The OIDC token of a GitHub job. It names the repository, branch and environment of the job.

use url::Url;

use super::{
    CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
};

const REQUEST_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
const REQUEST_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";

/// Returns true if the job may ask for such a token (`id-token: write`).
pub(super) fn is_offered(environment: &CloudEnvironment) -> bool {
    environment.has(REQUEST_URL) && environment.has(REQUEST_TOKEN)
}

/// Requests a token for an audience. Returns `None` if the job lacks `id-token: write`.
pub(super) async fn request(
    client: &LoginClient,
    environment: &CloudEnvironment,
    audience: &str,
) -> Result<Option<String>, CloudError> {
    let (Some(url), Some(token)) = (environment.var(REQUEST_URL), environment.var(REQUEST_TOKEN)) else {
        return Ok(None);
    };
    let url: Option<Url> = url.parse().ok();
    let url = url.filter(|url| url.scheme() == "https" || addresses::is_this_machine(url));
    let Some(mut url) = url else {
        return Err(CloudError::setting(REQUEST_URL, "it is not an HTTPS address"));
    };
    url.query_pairs_mut().append_pair("audience", audience);
    let what = "the job's own token";
    let answer = http_client::json(client.get(url).bearer_auth(token), what).await?;
    http_client::field(&answer, "value", what).map(Some)
}

/// The token in the file that a variable names, or else the one that GitHub gives.
pub(super) async fn from_file_or_github(
    client: &LoginClient,
    environment: &CloudEnvironment,
    variable: &str,
    audience: &str,
) -> Result<Option<String>, CloudError> {
    match environment.var(variable) {
        Some(path) => {
            let read = tokio::fs::read_to_string(path).await;
            let token = read.map_err(|error| CloudError::setting(variable, error.to_string()))?;
            Ok(Some(token.trim().to_owned()))
        }
        None => request(client, environment, audience).await,
    }
}
