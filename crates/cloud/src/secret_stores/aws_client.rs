//! Requests to the JSON services of AWS: signed, with the keys of a login by rights.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use super::{
    SecretProblem, SecretRights, cloud_login,
    http::{SecretHttpAnswer, SecretHttpClient, service_url, unexpected},
};
use crate::{AwsKeys, AwsLogin, SignedJsonPost, aws_host};
use konverge_secrets::Secrets;

/// Keys are renewed this long before they end.
const EARLY: Duration = Duration::from_secs(120);

/// A login that failed is not tried again for this long.
const FAILURE_KEPT: Duration = Duration::from_secs(60);

/// Address of a service, and the login there.
pub struct AwsSettings {
    /// `None`: the run names no region.
    pub region: Option<String>,
    /// `None`: the public address of the region.
    pub address: Option<String>,
    /// Login that gives its keys.
    pub login: AwsLogin,
    /// The login of previews, if it is another.
    pub preview_login: Option<AwsLogin>,
}

/// Sends requests to one service.
pub(super) struct AwsClient {
    /// As in signatures and addresses, such as `secretsmanager`.
    service: &'static str,
    settings: AwsSettings,
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    /// By rights.
    logins: [Mutex<Option<Login>>; 2],
}

/// The last login.
struct Login {
    at: Instant,
    result: Result<(AwsKeys, Option<Duration>), SecretProblem>,
}

impl AwsClient {
    /// `secrets` learns the keys of logins.
    pub(super) fn new(service: &'static str, settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            service,
            settings,
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            logins: Default::default(),
        }
    }

    /// Gets the keys, and sends nothing with them.
    ///
    /// # Errors
    /// The job has none, or AWS gives none.
    pub(super) async fn log_in(&self, rights: SecretRights) -> Result<(), SecretProblem> {
        self.keys(rights).await.map(drop)
    }

    /// Calls an operation that may be repeated. `target` is `SERVICE.OPERATION`.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub(super) async fn call(
        &self,
        target: &str,
        request: &Value,
        rights: SecretRights,
    ) -> Result<Value, SecretProblem> {
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let region = self.settings.region.as_deref().ok_or_else(|| {
            SecretProblem::NoCredentials("no region is named: set `region`, or AWS_REGION in this job".into())
        })?;
        let address = match &self.settings.address {
            Some(address) => format!("{}/", address.trim_end_matches('/')),
            None => format!("https://{}/", aws_host(self.service, region)?),
        };
        let url = service_url(&address)?;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let keys = self.keys(rights).await?;
        let body = request.to_string();
        let post = SignedJsonPost {
            service: self.service,
            region,
            host: &host,
            target,
            body: body.as_bytes(),
        };
        let send = |client: &reqwest::Client| {
            let headers = post.headers(&keys, Timestamp::now());
            let request = client.post(url.clone()).body(body.clone());
            let headers = headers.into_iter();
            headers.fold(request, |request, (name, value)| request.header(name, value))
        };
        let answer = http.send_unless(send, is_throttled).await?;
        if answer.status.is_success() {
            serde_json::from_slice(&answer.body).map_err(|_| unexpected("the answer is not JSON"))
        } else {
            Err(problem(http, &answer))
        }
    }

    async fn keys(&self, rights: SecretRights) -> Result<AwsKeys, SecretProblem> {
        let mut login = self.logins[rights as usize].lock().await;
        if let Some(login) = login.as_ref() {
            match &login.result {
                Ok((keys, lasts)) if lasts.is_none_or(|lasts| login.at.elapsed() + EARLY < lasts) => {
                    return Ok(keys.clone());
                }
                Err(problem) if login.at.elapsed() < FAILURE_KEPT => return Err(problem.clone()),
                _ => {}
            }
        }
        let of_rights = match (rights, &self.settings.preview_login) {
            (SecretRights::Versions, Some(preview_login)) => preview_login,
            _ => &self.settings.login,
        };
        let result = cloud_login::with_retries(|| of_rights.keys()).await;
        if let Ok((keys, _)) = &result {
            let secrets = [&keys.secret_key].into_iter().chain(&keys.session_token);
            secrets.for_each(|secret| self.secrets.learn(secret));
        }
        let keys = result.clone().map(|(keys, _)| keys);
        *login = Some(Login {
            at: Instant::now(),
            result,
        });
        keys
    }
}

/// The code of an error: `ResourceNotFoundException`.
fn code(answer: &SecretHttpAnswer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = body["__type"].as_str().unwrap_or_default();
    code.rsplit('#').next().unwrap_or_default().to_owned()
}

/// AWS says with status 400 that it is busy.
fn is_throttled(answer: &SecretHttpAnswer) -> bool {
    answer.status.as_u16() == 400
        && matches!(
            code(answer).as_str(),
            "ThrottlingException" | "Throttling" | "TooManyRequestsException" | "RequestLimitExceeded"
        )
}

fn problem(http: &SecretHttpClient, answer: &SecretHttpAnswer) -> SecretProblem {
    let status = answer.status.as_u16();
    let code = code(answer);
    let words = http.words(answer, |body| {
        let said = body.get("message").or_else(|| body.get("Message"))?;
        said.as_str().map(str::to_owned)
    });
    let why = match code.as_str() {
        "" => words,
        code => format!("{}: {words}", http.shown(code)),
    };
    let why = why.into();
    match code.as_str() {
        "NotFoundException"
        | "ResourceNotFoundException"
        | "ParameterNotFound"
        | "ParameterVersionNotFound" => SecretProblem::Missing(Some(status)),
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "MissingAuthenticationTokenException" => SecretProblem::Login {
            status: Some(status),
            why,
        },
        "AccessDeniedException" => SecretProblem::Denied {
            status: Some(status),
            why,
        },
        _ if status == 401 || status == 403 => SecretProblem::Denied {
            status: Some(status),
            why,
        },
        _ => SecretProblem::Unexpected {
            status: Some(status),
            why,
        },
    }
}
