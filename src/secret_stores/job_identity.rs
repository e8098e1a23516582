//! The OIDC token that GitHub gives a job, for stores that trust it.

use serde_json::Value;
use zeroize::Zeroizing;

use super::{SecretProblem, http::SecretHttpClient};
use crate::secrets::Secrets;

/// Where a job of GitHub Actions gets its OIDC token.
pub struct JobIdentity {
    pub url: String,
    pub token: Zeroizing<String>,
    pub audience: Option<String>,
}

impl JobIdentity {
    /// Asks GitHub for a token. `secrets` learns it.
    ///
    /// # Errors
    /// GitHub gives none.
    pub(super) async fn job_token(
        &self,
        http: &SecretHttpClient,
        secrets: &Secrets,
    ) -> Result<Zeroizing<String>, SecretProblem> {
        let no_address =
            |_| SecretProblem::NoCredentials("ACTIONS_ID_TOKEN_REQUEST_URL is not a URL".to_owned());
        let mut url = url::Url::parse(&self.url).map_err(no_address)?;
        if let Some(audience) = &self.audience {
            url.query_pairs_mut().append_pair("audience", audience);
        }
        let answer = http.send(|client| client.get(url.clone()).bearer_auth(self.token.as_str()));
        let answer = answer.await?;
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match body.get_mut("value") {
            Some(Value::String(token)) if answer.status.is_success() => {
                let token = Zeroizing::new(std::mem::take(token));
                secrets.learn(&token);
                Ok(token)
            }
            _ => Err(SecretProblem::NoCredentials(format!(
                "GitHub gave this job no OIDC token (HTTP {})",
                answer.status.as_u16()
            ))),
        }
    }
}
