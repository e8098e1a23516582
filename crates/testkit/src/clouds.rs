//! Fake token endpoints of GitHub's jobs, Google, Entra and Alibaba Cloud, on one port of this machine. They refuse
//! requests that differ from the documentation, and quote the request in the refusal, as some real servers do.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};

/// The running server. It ends with the runtime on which it was started.
pub struct Clouds {
    pub url: String,
    key: rcgen::KeyPair,
    folder: tempfile::TempDir,
    granted: Arc<Mutex<Vec<String>>>,
}

/// The state of the server.
struct Issuer {
    url: String,
    public_key: String,
    /// The token that each cloud returns, and its lifetime in seconds.
    token: (String, u64),
    granted: Arc<Mutex<Vec<String>>>,
}

impl Clouds {
    /// The application of the test at Entra.
    pub const TENANT: &str = "11111111-2222-3333-4444-555555555555";
    pub const APPLICATION: &str = "99999999-8888-7777-6666-555555555555";
    /// The pool and the account of the test at Google.
    pub const AUDIENCE: &str =
        "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/github/providers/konverge";
    pub const ACCOUNT: &str = "konverge@my-project.iam.gserviceaccount.com";
    /// Another account at Google, for previews.
    pub const PREVIEW_ACCOUNT: &str = "plan@my-project.iam.gserviceaccount.com";
    /// The subject of the job's token, for an audience of the tests.
    pub const SUBJECT: &str = "repo:acme/konfig:environment:production";
    /// The role of the test at Alibaba Cloud, and the provider that trusts the job.
    pub const RAM_ROLE: &str = "acs:ram::1234567890123456:role/apply";
    pub const RAM_PROVIDER: &str = "acs:ram::1234567890123456:oidc-provider/github";
    /// The bearer token with which a job requests its OIDC token.
    const JOB_BEARER: &str = "the-bearer-of-the-job";

    /// Starts a server that returns this token, with this lifetime in seconds.
    pub async fn start(token: &str, lifetime: u64) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let granted = Arc::<Mutex<Vec<String>>>::default();
        let issuer = Arc::new(Issuer {
            url: url.clone(),
            public_key: key.public_key_pem(),
            token: (token.to_owned(), lifetime),
            granted: Arc::clone(&granted),
        });
        let router = Router::new().fallback(move |request| answer(Arc::clone(&issuer), request));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            key,
            folder: tempfile::tempdir().unwrap(),
            granted,
        }
    }

    /// Returns which tokens were issued since the last call, in order.
    pub fn granted(&self) -> Vec<String> {
        std::mem::take(&mut *self.granted.lock().unwrap())
    }

    /// Returns the variables of a job with `id-token: write`.
    pub fn job(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "ACTIONS_ID_TOKEN_REQUEST_URL",
                format!("{}/job?api-version=2.0", self.url),
            ),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Self::JOB_BEARER.to_owned()),
        ]
    }

    /// Returns the variables of a job that logs in as an application at Entra.
    pub fn azure(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AZURE_AUTHORITY_HOST", self.url.clone()),
            ("AZURE_TENANT_ID", Self::TENANT.to_owned()),
            ("AZURE_CLIENT_ID", Self::APPLICATION.to_owned()),
        ]
    }

    /// Returns the variable with the credentials file that `google-github-actions/auth` writes.
    pub fn google_federation(&self) -> (&'static str, String) {
        let audience = format!("https:{}", Self::AUDIENCE);
        self.google_file(&json!({
            "type": "external_account",
            "audience": Self::AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": format!("{}/v1/token", self.url),
            "service_account_impersonation_url":
                format!("{}/v1/projects/-/serviceAccounts/{}:generateAccessToken", self.url, Self::ACCOUNT),
            "credential_source": {
                "url": format!("{}/job?api-version=2.0&audience={audience}", self.url),
                "headers": {"Authorization": format!("Bearer {}", Self::JOB_BEARER)},
                "format": {"type": "json", "subject_token_field_name": "value"},
            },
        }))
    }

    /// Returns the variable with the key file of a service account.
    pub fn google_key(&self) -> (&'static str, String) {
        self.google_file(&json!({
            "type": "service_account", "client_email": Self::ACCOUNT, "private_key_id": "key-1",
            "private_key": self.key.serialize_pem(), "token_uri": format!("{}/token", self.url),
        }))
    }

    fn google_file(&self, content: &Value) -> (&'static str, String) {
        let path: PathBuf = self.folder.path().join("google.json");
        std::fs::write(&path, content.to_string()).unwrap();
        ("GOOGLE_APPLICATION_CREDENTIALS", path.display().to_string())
    }
}

async fn answer(issuer: Arc<Issuer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 100_000).await.unwrap();
    let body = String::from_utf8_lossy(&body).into_owned();
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let form = |text: &str| -> BTreeMap<String, String> {
        url::form_urlencoded::parse(text.as_bytes())
            .into_owned()
            .collect()
    };
    let found = match (parts.method.as_str(), parts.uri.path()) {
        ("GET", "/job") => {
            let is_job =
                header("authorization").eq_ignore_ascii_case(&format!("Bearer {}", Clouds::JOB_BEARER));
            let audience = form(parts.uri.query().unwrap_or_default()).remove("audience");
            audience.filter(|_| is_job).map(|audience| {
                let token = match audience.as_str() {
                    "konverge" => job_token(Clouds::SUBJECT),
                    _ => format!("job-token-for:{audience}"),
                };
                ("job".to_owned(), json!({"value": token}))
            })
        }
        ("GET", "/computeMetadata/v1/instance/service-accounts/default/token") => {
            (header("metadata-flavor") == "Google").then(|| ("machine".to_owned(), issuer.oauth_token()))
        }
        ("POST", "/") => issuer.alibaba(&form(&body)),
        ("POST", "/v1/token") => issuer.exchange(&form(&body)),
        ("POST", "/token") => issuer.service_account(&form(&body)),
        ("POST", path) if path == format!("/{}/oauth2/v2.0/token", Clouds::TENANT) => {
            issuer.entra(&form(&body))
        }
        ("POST", path)
            if [Clouds::ACCOUNT, Clouds::PREVIEW_ACCOUNT]
                .into_iter()
                .any(|account| {
                    path.ends_with(&format!("/serviceAccounts/{account}:generateAccessToken"))
                }) =>
        {
            issuer.impersonation(
                header("authorization"),
                &serde_json::from_str(&body).unwrap_or_default(),
            )
        }
        _ => None,
    };
    match found {
        Some((what, answer)) => {
            issuer.granted.lock().unwrap().push(what);
            (StatusCode::OK, answer.to_string()).into_response()
        }
        None => {
            let said = format!("not trusted: {body} {}", header("authorization"));
            let answer = json!({"error": "invalid_grant", "error_description": said});
            (StatusCode::UNAUTHORIZED, answer.to_string()).into_response()
        }
    }
}

/// Returns a token with this subject. Its signature is never checked here.
fn job_token(subject: &str) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.x",
        part(json!({"alg": "none"})),
        part(json!({"sub": subject}))
    )
}

type Granted = Option<(String, Value)>;

impl Issuer {
    fn oauth_token(&self) -> Value {
        json!({"access_token": self.token.0, "expires_in": self.token.1, "token_type": "Bearer"})
    }

    /// Answers a token request at Entra, as documented:
    /// <https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow>
    fn entra(&self, form: &BTreeMap<String, String>) -> Granted {
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let by_job = is(
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ) && is("client_assertion", "job-token-for:api://AzureADTokenExchange");
        let is_good = is("grant_type", "client_credentials")
            && is("client_id", Clouds::APPLICATION)
            && (by_job || is("client_secret", "the-secret-of-the-application"));
        is_good.then(|| (format!("entra {}", form["scope"]), self.oauth_token()))
    }

    /// Answers a login at Alibaba Cloud, as documented:
    /// <https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc>
    fn alibaba(&self, form: &BTreeMap<String, String>) -> Granted {
        let wanted = [
            ("Action", "AssumeRoleWithOIDC"),
            ("RoleArn", Clouds::RAM_ROLE),
            ("OIDCProviderArn", Clouds::RAM_PROVIDER),
            ("OIDCToken", "job-token-for:sts.aliyuncs.com"),
        ];
        let is_good = wanted
            .iter()
            .all(|(name, value)| form.get(*name).is_some_and(|given| given == value));
        is_good.then(|| {
            let keys = json!({"AccessKeyId": "STS.id", "AccessKeySecret": "ram-secret", "SecurityToken": self.token.0});
            ("ram".to_owned(), json!({"Credentials": keys}))
        })
    }

    /// Answers a token exchange at Google, as documented:
    /// <https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token>
    fn exchange(&self, form: &BTreeMap<String, String>) -> Granted {
        let subject = format!("job-token-for:https:{}", Clouds::AUDIENCE);
        let wanted = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("audience", Clouds::AUDIENCE),
            ("scope", "https://www.googleapis.com/auth/cloud-platform"),
            ("subject_token", &subject),
        ];
        let is_good = wanted
            .iter()
            .all(|(name, value)| form.get(*name).is_some_and(|given| given == value));
        is_good.then(|| {
            let token = json!({"access_token": "the-traded-token", "expires_in": 3600});
            ("trade".to_owned(), token)
        })
    }

    /// Answers a request for a service account's token, as documented:
    /// <https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken>
    fn impersonation(&self, bearer: &str, body: &Value) -> Granted {
        let scopes: Vec<_> = body["scope"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let end = jiff::Timestamp::now() + std::time::Duration::from_secs(self.token.1);
        (bearer == "Bearer the-traded-token").then(|| {
            let token = json!({"accessToken": self.token.0, "expireTime": end.to_string()});
            (format!("account {}", scopes.join(" ")), token)
        })
    }

    /// Answers a login with a service account's key, as documented:
    /// <https://developers.google.com/identity/protocols/oauth2/service-account>
    fn service_account(&self, form: &BTreeMap<String, String>) -> Granted {
        if form.get("grant_type")? != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
            return None;
        }
        let key = DecodingKey::from_rsa_pem(self.public_key.as_bytes()).unwrap();
        let mut validation = Validation::new(Algorithm::RS256);
        validation.set_audience(&[format!("{}/token", self.url)]);
        validation.set_issuer(&[Clouds::ACCOUNT]);
        let claims = jsonwebtoken::decode::<Value>(form.get("assertion")?, &key, &validation).ok()?;
        let (header, claims) = (claims.header, claims.claims);
        let is_good = header.kid.as_deref() == Some("key-1")
            && claims["exp"].as_i64()? - claims["iat"].as_i64()? <= 3600;
        is_good.then(|| {
            (
                format!("key {}", claims["scope"].as_str().unwrap()),
                self.oauth_token(),
            )
        })
    }
}
