//! Signed requests to the JSON services of AWS. Previews and applies have separate logins.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use url::Position;

use super::{
    SecretProblem, SecretRights,
    http::{SecretHttpAnswer, SecretHttpClient, service_url},
};
use crate::{AccessKeys, AwsLogin, SignedJsonPost, aws_host, shared_credentials::with_retries};
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
    http: SecretHttpClient,
    /// The last login for each of the [`SecretRights`].
    logins: [Mutex<Option<Login>>; 2],
}

/// The result of the last login.
struct Login {
    at: Instant,
    result: Result<(AccessKeys, Option<Duration>), SecretProblem>,
}

impl AwsClient {
    /// Creates a client. The keys of its logins are added to `secrets`, which masks them.
    pub(super) fn new(service: &'static str, settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            service,
            settings,
            http: SecretHttpClient::new(secrets),
            logins: Default::default(),
        }
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
        let region = self.settings.region.as_deref().ok_or_else(|| {
            SecretProblem::NoCredentials("no region is named: set `region`, or AWS_REGION in this job".into())
        })?;
        let address = match &self.settings.address {
            Some(address) => format!("{}/", address.trim_end_matches('/')),
            None => format!("https://{}/", aws_host(self.service, region)?),
        };
        let url = service_url(&address)?;
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let keys = self.keys(rights).await?;
        let body = request.to_string();
        let post = SignedJsonPost {
            service: self.service,
            region,
            host,
            target,
            body: body.as_bytes(),
        };
        let send = |client: &reqwest::Client| {
            let headers = post.headers(&keys, Timestamp::now());
            let request = client.post(url.clone()).body(body.clone());
            let headers = headers.into_iter();
            headers.fold(request, |request, (name, value)| request.header(name, value))
        };
        let answer = self.http.send_unless(send, is_throttled).await?;
        answer.json(|answer| problem(&self.http, answer))
    }

    /// Returns the cached keys, or new ones from the login if they expire soon.
    ///
    /// # Errors
    /// The job has no identity, or AWS refuses it.
    pub(super) async fn keys(&self, rights: SecretRights) -> Result<AccessKeys, SecretProblem> {
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
        let result = with_retries(|| of_rights.keys())
            .await
            .map_err(SecretProblem::from);
        if let Ok((keys, _)) = &result {
            let secrets = [&keys.secret_key].into_iter().chain(&keys.session_token);
            secrets.for_each(|secret| self.http.secrets.learn(secret));
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
    let status = Some(answer.status.as_u16());
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
        | "ParameterVersionNotFound" => SecretProblem::Missing(status),
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "MissingAuthenticationTokenException" => SecretProblem::Login { status, why },
        "AccessDeniedException" => SecretProblem::Denied { status, why },
        _ if matches!(status, Some(401 | 403)) => SecretProblem::Denied { status, why },
        _ => SecretProblem::Unexpected { status, why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use reqwest::StatusCode;
    use serde_json::json;
    use zeroize::Zeroizing;

    fn answer(status: u16, body: &Value) -> SecretHttpAnswer {
        SecretHttpAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            body: Zeroizing::new(body.to_string().into_bytes()),
        }
    }

    #[test]
    fn a_refusal_is_told_by_its_code_and_then_by_its_status() {
        let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
        let problem = |status, code: &str| {
            problem(
                &http,
                &answer(status, &json!({"__type": code, "Message": "said"})),
            )
        };
        let why = |text: &str| text.to_owned().into();
        let status = Some(400);
        assert_eq!(
            problem(400, "com.amazonaws.secretsmanager#ResourceNotFoundException"),
            SecretProblem::Missing(status)
        );
        assert_eq!(
            problem(400, "ParameterVersionNotFound"),
            SecretProblem::Missing(status)
        );
        assert_eq!(
            problem(400, "ExpiredTokenException"),
            SecretProblem::Login {
                status,
                why: why("ExpiredTokenException: said")
            }
        );
        assert_eq!(
            problem(400, "AccessDeniedException"),
            SecretProblem::Denied {
                status,
                why: why("AccessDeniedException: said")
            }
        );
        assert_eq!(
            problem(403, ""),
            SecretProblem::Denied {
                status: Some(403),
                why: why("said")
            }
        );
        assert_eq!(
            problem(400, "ValidationException"),
            SecretProblem::Unexpected {
                status,
                why: why("ValidationException: said")
            }
        );
    }

    #[test]
    fn only_a_throttled_call_is_repeated() {
        for (status, code, is_busy) in [
            (400, "ThrottlingException", true),
            (400, "com.amazonaws.ssm#TooManyRequestsException", true),
            (400, "AccessDeniedException", false),
            (403, "ThrottlingException", false),
        ] {
            let answer = answer(status, &json!({"__type": code}));
            assert_eq!(is_throttled(&answer), is_busy, "{status} {code}");
        }
    }

    /// The keys of a preview read versions only, so that a value that a preview asks for is denied by AWS.
    #[tokio::test]
    async fn a_preview_logs_in_with_its_own_keys() {
        let login = |key: &str| {
            let environment = crate::CloudEnvironment::default()
                .with("AWS_ACCESS_KEY_ID", key)
                .with("AWS_SECRET_ACCESS_KEY", "s3cret-of-a-login");
            AwsLogin::new(environment)
        };
        for (preview_login, of_versions) in [(Some(login("preview")), "preview"), (None, "apply")] {
            let settings = AwsSettings {
                region: None,
                address: None,
                login: login("apply"),
                preview_login,
            };
            let secrets = Secrets::new(HashKey::derive("k"));
            let client = AwsClient::new("ssm", settings, secrets.clone());
            let versions = client.keys(SecretRights::Versions).await.unwrap();
            let values = client.keys(SecretRights::Values).await.unwrap();
            assert_eq!(
                (versions.access_key.as_str(), values.access_key.as_str()),
                (of_versions, "apply")
            );
            assert!(
                !secrets
                    .mask("a s3cret-of-a-login b")
                    .contains("s3cret-of-a-login")
            );
            let request = json!({});
            let unnamed = client.call("AmazonSSM.GetParameter", &request, SecretRights::Values);
            assert!(
                matches!(unnamed.await, Err(SecretProblem::NoCredentials(_))),
                "no region"
            );
        }
    }
}
