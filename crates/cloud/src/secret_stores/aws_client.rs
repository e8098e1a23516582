//! Signed requests to the JSON services of AWS. Previews and applies have separate logins.

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

/// Keys are renewed this long before they expire.
const EARLY: Duration = Duration::from_secs(120);

/// Time for which a failed login is not repeated.
const FAILURE_KEPT: Duration = Duration::from_secs(60);

/// The address of a service, and the login there.
pub struct AwsSettings {
    /// The region; `None` if the run names none.
    pub region: Option<String>,
    /// The address; `None` for the public one of the region.
    pub address: Option<String>,
    /// The login at AWS.
    pub login: AwsLogin,
    /// The login of previews; `None` to use `login`.
    pub preview_login: Option<AwsLogin>,
}

/// Sends requests to one service.
pub(super) struct AwsClient {
    /// The service's name in signatures and addresses, such as `secretsmanager`.
    service: &'static str,
    settings: AwsSettings,
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    /// The last login for each of the [`SecretRights`].
    logins: [Mutex<Option<Login>>; 2],
}

/// The result of the last login.
struct Login {
    at: Instant,
    result: Result<(AwsKeys, Option<Duration>), SecretProblem>,
}

impl AwsClient {
    /// Creates a client. The keys of its logins are added to `secrets`, which masks them.
    pub(super) fn new(service: &'static str, settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            service,
            settings,
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            logins: Default::default(),
        }
    }

    /// Logs in without sending a request.
    ///
    /// # Errors
    /// The job has no identity, or AWS refuses it.
    pub(super) async fn log_in(&self, rights: SecretRights) -> Result<(), SecretProblem> {
        self.keys(rights).await.map(drop)
    }

    /// Calls an operation that is safe to repeat. `target` is `SERVICE.OPERATION`.
    ///
    /// # Errors
    /// The service does not respond, or refuses the request.
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

/// Returns the error code of a response, such as `ResourceNotFoundException`.
fn code(answer: &SecretHttpAnswer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = body["__type"].as_str().unwrap_or_default();
    code.rsplit('#').next().unwrap_or_default().to_owned()
}

/// Returns true if the service is busy, which AWS reports with status 400.
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
