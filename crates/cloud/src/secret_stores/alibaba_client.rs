//! Requests to Alibaba Cloud's KMS, signed with the keys of a login, which are cached while they are valid.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use super::{
    SecretProblem, cloud_login,
    http::{SecretHttpAnswer, SecretHttpClient, service_url, unexpected},
};
use crate::{AlibabaKeys, AlibabaLogin, SignedAlibabaCall};
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
    secrets: Secrets,
    http: Result<SecretHttpClient, SecretProblem>,
    keys: Mutex<Option<(Instant, AlibabaKeys, Option<Duration>)>>,
}

impl AlibabaClient {
    /// Creates a client. The keys of its logins are added to `secrets`, which masks them.
    pub(super) fn new(settings: AlibabaSettings, secrets: Secrets) -> Self {
        Self {
            settings,
            http: SecretHttpClient::new(secrets.clone()),
            secrets,
            keys: Mutex::default(),
        }
    }

    /// Returns the cached keys, or new ones from the login if they expire soon.
    ///
    /// # Errors
    /// The job has no identity, or Alibaba refuses it.
    pub(super) async fn keys(&self) -> Result<AlibabaKeys, SecretProblem> {
        let mut kept = self.keys.lock().await;
        if let Some((at, keys, lasts)) = &*kept
            && lasts.is_none_or(|lasts| at.elapsed() + EARLY < lasts)
        {
            return Ok(keys.clone());
        }
        let (keys, lasts) = cloud_login::with_retries(|| self.settings.login.keys()).await?;
        let secrets = [&keys.secret_key].into_iter().chain(&keys.session_token);
        secrets.for_each(|secret| self.secrets.learn(secret));
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
        let http = self.http.as_ref().map_err(Clone::clone)?;
        let mut url = self.url()?;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
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
        let answer = http.send_unless(send, is_throttled).await?;
        if answer.status.is_success() {
            serde_json::from_slice(&answer.body).map_err(|_| unexpected("the answer is not JSON"))
        } else {
            Err(problem(http, &answer))
        }
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
