//! Requests to Alibaba Cloud's KMS, signed with the keys of a login, which are cached while they are valid.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use url::Position;

use super::{
    SecretProblem,
    http::{SecretHttpAnswer, SecretHttpClient, service_url},
};
use crate::{AccessKeys, AlibabaLogin, SignedAlibabaCall, shared_credentials::with_retries};
use konverge_secrets::Secrets;

/// The version of the API.
const VERSION: &str = "2016-01-20";
/// Keys are renewed this long before they expire.
const EARLY: Duration = Duration::from_secs(120);

/// The address of KMS, and the login there.
pub struct AlibabaSettings {
    /// The region; `None` if the run names none.
    pub region: Option<String>,
    /// The address; `None` for the public one of the region.
    pub address: Option<String>,
    /// The login at Alibaba Cloud.
    pub login: AlibabaLogin,
}

/// Sends requests to KMS.
pub(super) struct AlibabaClient {
    settings: AlibabaSettings,
    http: SecretHttpClient,
    keys: Mutex<Option<(Instant, AccessKeys, Option<Duration>)>>,
}

impl AlibabaClient {
    /// Creates a client. The keys of its logins are added to `secrets`, which masks them.
    pub(super) fn new(settings: AlibabaSettings, secrets: Secrets) -> Self {
        Self {
            settings,
            http: SecretHttpClient::new(secrets),
            keys: Mutex::default(),
        }
    }

    /// Returns the cached keys, or new ones from the login if they expire soon.
    ///
    /// # Errors
    /// The job has no identity, or Alibaba refuses it.
    pub(super) async fn keys(&self) -> Result<AccessKeys, SecretProblem> {
        let mut kept = self.keys.lock().await;
        if let Some((at, keys, lasts)) = &*kept
            && lasts.is_none_or(|lasts| at.elapsed() + EARLY < lasts)
        {
            return Ok(keys.clone());
        }
        let (keys, lasts) = with_retries(|| self.settings.login.keys()).await?;
        let secrets = [&keys.secret_key].into_iter().chain(&keys.session_token);
        secrets.for_each(|secret| self.http.secrets.learn(secret));
        *kept = Some((Instant::now(), keys.clone(), lasts));
        Ok(keys)
    }

    /// Calls an operation that is safe to repeat.
    ///
    /// # Errors
    /// The service does not respond, or refuses the request.
    pub(super) async fn call(
        &self,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Value, SecretProblem> {
        let mut url = self.url()?;
        let host = url[Position::BeforeHost..Position::AfterPort].to_owned();
        let keys = self.keys().await?;
        let call = SignedAlibabaCall {
            host: &host,
            action,
            version: VERSION,
            parameters,
        };
        url.set_query(Some(&call.query()));
        let send = |client: &reqwest::Client| {
            let nonce = uuid::Uuid::new_v4().simple().to_string();
            let headers = call.headers(&keys, Timestamp::now(), &nonce);
            let headers = headers.into_iter();
            headers.fold(client.post(url.clone()), |request, (name, value)| {
                request.header(name, value)
            })
        };
        let answer = self.http.send_unless(send, is_throttled).await?;
        answer.json(|answer| problem(&self.http, answer))
    }

    fn url(&self) -> Result<url::Url, SecretProblem> {
        let address = match (&self.settings.address, self.settings.region.as_deref()) {
            (Some(address), _) => address.clone(),
            (None, Some(region)) => format!("https://kms.{region}.aliyuncs.com"),
            (None, None) => {
                return Err(SecretProblem::NoCredentials(
                    "no region is named: set `region`, or ALIBABA_CLOUD_REGION in this job".into(),
                ));
            }
        };
        let mut url = service_url(&address)?;
        url.set_path("/");
        Ok(url)
    }
}

/// Returns the error code of a response, such as `Forbidden.ResourceNotFound`.
fn code(answer: &SecretHttpAnswer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["Code"].as_str().unwrap_or_default().to_owned()
}

/// Returns true if the service is busy, which Alibaba reports with status 400.
fn is_throttled(answer: &SecretHttpAnswer) -> bool {
    answer.status.as_u16() == 400 && code(answer).starts_with("Throttling")
}

fn problem(http: &SecretHttpClient, answer: &SecretHttpAnswer) -> SecretProblem {
    let status = Some(answer.status.as_u16());
    let code = code(answer);
    let is_of_signature = code.contains("Signature");
    let words = if is_of_signature {
        // The message of this error repeats the request, which may hold a secret.
        String::new()
    } else {
        http.words(answer, |body| body["Message"].as_str().map(str::to_owned))
    };
    let why = match (code.as_str(), words.as_str()) {
        ("", words) => words.to_owned(),
        (code, "") => http.shown(code),
        (code, words) => format!("{}: {words}", http.shown(code)),
    };
    let why = why.into();
    let begins = |starts: &[&str]| starts.iter().any(|start| code.starts_with(start));
    match status {
        _ if begins(&["Forbidden.ResourceNotFound", "EntityNotExist"]) => SecretProblem::Missing(status),
        Some(404) => SecretProblem::Missing(status),
        _ if is_of_signature
            || begins(&[
                "InvalidAccessKeyId",
                "InvalidSecurityToken",
                "IncompleteSignature",
            ]) =>
        {
            SecretProblem::Login { status, why }
        }
        Some(401 | 403) => SecretProblem::Denied { status, why },
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

    fn client(region: Option<&str>, address: Option<&str>) -> AlibabaClient {
        let settings = AlibabaSettings {
            region: region.map(str::to_owned),
            address: address.map(str::to_owned),
            login: AlibabaLogin::new(crate::CloudEnvironment::default()),
        };
        AlibabaClient::new(settings, Secrets::new(HashKey::derive("k")))
    }

    #[test]
    fn a_refusal_is_told_by_its_code_and_then_by_its_status() {
        let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
        let problem =
            |status, code: &str| problem(&http, &answer(status, &json!({"Code": code, "Message": "said"})));
        for (status, code) in [
            (404, "Anything"),
            (403, "Forbidden.ResourceNotFound"),
            (400, "EntityNotExist.Role"),
        ] {
            assert_eq!(
                problem(status, code),
                SecretProblem::Missing(Some(status)),
                "{code}"
            );
        }
        for (status, code) in [
            (400, "InvalidAccessKeyId.NotFound"),
            (403, "InvalidSecurityToken.Expired"),
        ] {
            let found = problem(status, code);
            assert!(
                matches!(found, SecretProblem::Login { .. }) && found.is_of_store(),
                "{code}"
            );
        }
        let denied = SecretProblem::Denied {
            status: Some(403),
            why: "Forbidden.NoPermission: said".into(),
        };
        assert_eq!(problem(403, "Forbidden.NoPermission"), denied);
        assert!(matches!(
            problem(400, "Rejected"),
            SecretProblem::Unexpected { .. }
        ));
    }

    /// The message of that error repeats the request.
    #[test]
    fn the_words_about_a_wrong_signature_are_not_shown() {
        let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
        let body = json!({"Code": "SignatureDoesNotMatch", "Message": "server string to sign is:s3cret"});
        let expected = SecretProblem::Login {
            status: Some(400),
            why: "SignatureDoesNotMatch".into(),
        };
        assert_eq!(problem(&http, &answer(400, &body)), expected);
    }

    #[test]
    fn only_a_throttled_call_is_repeated() {
        for (status, code, is_busy) in [
            (400, "Throttling", true),
            (400, "Throttling.User", true),
            (400, "Rejected.Throttling", false),
            (403, "Throttling", false),
        ] {
            assert_eq!(
                is_throttled(&answer(status, &json!({"Code": code}))),
                is_busy,
                "{status} {code}"
            );
        }
        assert!(!is_throttled(&answer(400, &json!("Throttling"))));
    }

    #[test]
    fn a_call_goes_to_the_root_of_the_service() {
        let url = |region, address| client(region, address).url().map(String::from);
        let of_region = url(Some("cn-shanghai"), None);
        assert_eq!(of_region.as_deref(), Ok("https://kms.cn-shanghai.aliyuncs.com/"));
        let private = url(Some("cn-shanghai"), Some("https://kms.example/some/path"));
        assert_eq!(private.as_deref(), Ok("https://kms.example/"));
        assert!(matches!(url(None, None), Err(SecretProblem::NoCredentials(_))));
        assert!(url(None, Some("https://me:s3cret@kms.example")).is_err());
    }
}
