//! Google's workload identity federation: exchanges the token of another issuer (a GitHub run's, a file's)
//! for a Google token. `GOOGLE_APPLICATION_CREDENTIALS` names the file that describes the exchange
//! (<https://google.aip.dev/auth/4117>). Commands in it are not executed.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use object_store::{CredentialProvider, gcp::GcpCredential};
use reqwest::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
/// The scope to request a service account's token, which needs a wider one.
const ASKING_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A token with less than this left is renewed.
const MARGIN: Duration = Duration::from_secs(120);

/// The supported part of the file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: Source,
}

/// The source of the other issuer's token.
#[derive(Debug, Clone, Deserialize)]
struct Source {
    file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    format: Option<Format>,
}

#[derive(Debug, Clone, Deserialize)]
struct Format {
    subject_token_field_name: Option<String>,
}

impl ExternalAccount {
    /// Reads the description from a file; `None` if it is of another kind.
    pub fn read(path: &str) -> Option<Self> {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        (file["type"] == "external_account")
            .then(|| serde_json::from_value(file).ok())
            .flatten()
    }
}

/// Exchanges tokens when one is needed, and keeps a token while it is valid.
#[derive(Debug)]
pub(super) struct WorkloadIdentity {
    account: ExternalAccount,
    client: Client,
    kept: Mutex<Option<(Arc<GcpCredential>, Instant)>>,
}

impl WorkloadIdentity {
    pub fn new(account: ExternalAccount, client: Client) -> Self {
        Self {
            account,
            client,
            kept: Mutex::default(),
        }
    }

    async fn trade(&self) -> Result<(String, Duration), String> {
        let account = &self.account;
        let subject = self.subject_token().await?;
        let scope = match account.service_account_impersonation_url {
            Some(_) => ASKING_SCOPE,
            None => SCOPE,
        };
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("audience", account.audience.as_str()),
            ("subject_token_type", account.subject_token_type.as_str()),
            ("subject_token", subject.as_str()),
            ("scope", scope),
        ];
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = self
            .client
            .post(&account.token_url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let federated = answer(request, "the token exchange").await?;
        let token = text(&federated, "access_token")?;
        let lives = Duration::from_secs(federated["expires_in"].as_u64().unwrap_or(3600));
        let Some(url) = &account.service_account_impersonation_url else {
            return Ok((token, lives));
        };
        let request = self
            .client
            .post(url)
            .bearer_auth(token)
            .json(&json!({"scope": [SCOPE]}));
        let own = answer(request, "the service account's token").await?;
        Ok((text(&own, "accessToken")?, Duration::from_secs(3600)))
    }

    async fn subject_token(&self) -> Result<String, String> {
        let source = &self.account.credential_source;
        let found = match (&source.file, &source.url) {
            (Some(file), _) => tokio::fs::read_to_string(file)
                .await
                .map_err(|error| format!("{}: {error}", file.display()))?,
            (None, Some(url)) => {
                let request = source
                    .headers
                    .iter()
                    .fold(self.client.get(url), |request, (name, value)| {
                        request.header(name, value)
                    });
                good(request, "the run's own token").await?
            }
            (None, None) => {
                return Err(
                    "its credential_source is neither a file nor a URL; commands are not run".to_owned(),
                );
            }
        };
        let field = source
            .format
            .as_ref()
            .and_then(|format| format.subject_token_field_name.as_ref());
        match field {
            None => Ok(found.trim().to_owned()),
            Some(field) => {
                let document: Value = serde_json::from_str(&found).map_err(|error| error.to_string())?;
                text(&document, field)
            }
        }
    }
}

async fn good(request: reqwest::RequestBuilder, what: &str) -> Result<String, String> {
    let failed = |why: String| format!("{what} was not given: {why}");
    let answer = request
        .send()
        .await
        .map_err(|error| failed(error.without_url().to_string()))?;
    let status = answer.status();
    let body = answer
        .text()
        .await
        .map_err(|error| failed(error.without_url().to_string()))?;
    if status.is_success() {
        return Ok(body);
    }
    // Google gives the reason in `error_description` or `error.message`; the rest may contain what was sent.
    let said: Value = serde_json::from_str(&body).unwrap_or_default();
    let why = [
        &said["error_description"],
        &said["error"]["message"],
        &said["error"],
    ];
    let why = why.iter().find_map(|value| value.as_str()).unwrap_or_default();
    Err(failed(format!("{status} {why}")))
}

async fn answer(request: reqwest::RequestBuilder, what: &str) -> Result<Value, String> {
    let body = good(request, what).await?;
    serde_json::from_str(&body).map_err(|error| format!("{what}: {error}"))
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    let found = value[key]
        .as_str()
        .ok_or_else(|| format!("the answer has no `{key}`"))?;
    Ok(found.to_owned())
}

#[async_trait]
impl CredentialProvider for WorkloadIdentity {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some((credential, until)) = kept.as_ref()
            && *until > Instant::now() + MARGIN
        {
            return Ok(credential.clone());
        }
        let (bearer, lives) = self.trade().await.map_err(|why| object_store::Error::Generic {
            store: "GCS",
            source: format!("workload identity federation: {why}").into(),
        })?;
        let credential = Arc::new(GcpCredential { bearer });
        *kept = Some((credential.clone(), Instant::now() + lives));
        Ok(credential)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{
        Router,
        http::{HeaderMap, StatusCode, Uri},
        response::IntoResponse as _,
    };

    use super::*;

    /// The issuer of a run, Google's exchange and a service account, each of which requires the token from
    /// the one before.
    async fn issuers() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(|uri: Uri, headers: HeaderMap, body: String| async move {
            let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
            let (status, answer) = match (uri.path(), bearer) {
                ("/run", Some("bearer run")) => (StatusCode::OK, json!({"value": "of the run"})),
                ("/exchange", _)
                    if body.contains("subject_token=of+the+run&") && body.contains("audience=%2F%2Fiam") =>
                {
                    (
                        StatusCode::OK,
                        json!({"access_token": "federated", "expires_in": 3600}),
                    )
                }
                ("/account", Some("Bearer federated")) => (StatusCode::OK, json!({"accessToken": "own"})),
                _ => (
                    StatusCode::FORBIDDEN,
                    json!({"error": "invalid_grant", "error_description": "not trusted"}),
                ),
            };
            (status, answer.to_string()).into_response()
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn client() -> Client {
        Client::builder()
            .timeout(Duration::from_secs(10))
            .build()
            .unwrap()
    }

    fn account(url: &str, bearer: &str) -> ExternalAccount {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = json!({
            "type": "external_account", "audience": "//iam.googleapis.com/pool",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": format!("{url}/exchange"), "service_account_impersonation_url": format!("{url}/account"),
            "credential_source": {
                "url": format!("{url}/run"), "headers": {"Authorization": bearer},
                "format": {"type": "json", "subject_token_field_name": "value"},
            },
        });
        std::fs::write(file.path(), text.to_string()).unwrap();
        ExternalAccount::read(file.path().to_str().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_run_s_token_is_traded_for_google_s() {
        let url = issuers().await;
        let federation = WorkloadIdentity::new(account(&url, "bearer run"), client());
        assert_eq!(federation.get_credential().await.unwrap().bearer, "own");
        let refused = WorkloadIdentity::new(account(&url, "bearer other"), client());
        let error = crate::error::chain(&refused.get_credential().await.unwrap_err());
        assert!(
            error.contains("the run's own token was not given: 403 Forbidden not trusted"),
            "{error}"
        );
    }

    #[test]
    fn other_kinds_of_files_are_left_to_the_client() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"type": "service_account"}"#).unwrap();
        assert!(ExternalAccount::read(file.path().to_str().unwrap()).is_none());
    }
}
