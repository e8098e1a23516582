//! The keys with which a job asks AWS: those of its environment, or those of a role that trusts the token of the job.
//!
//! <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>

use std::time::Duration;

use jiff::Timestamp;
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::{
    JobIdentity, SecretProblem, SecretRights,
    http::{SecretHttpClient, unexpected},
};
use crate::secrets::Secrets;

/// Keys, which may be short-lived.
#[derive(Clone)]
pub struct AwsCredentials {
    pub access_key: String,
    pub secret_key: Zeroizing<String>,
    pub session_token: Option<Zeroizing<String>>,
}

/// How the job logs in.
pub enum AwsStoreLogin {
    /// With the keys of its environment.
    Keys(Option<AwsCredentials>),
    /// With a role that trusts a token.
    Role {
        role: String,
        /// The role of previews, which reads versions only.
        preview_role: Option<String>,
        token: RoleToken,
        /// The address of the token service.
        sts: String,
    },
}

/// The token that a role trusts.
pub enum RoleToken {
    /// The one that GitHub gives the job.
    Job(Option<JobIdentity>),
    /// The content of a file.
    File(String),
}

impl AwsStoreLogin {
    /// The keys, and how long they are valid; `None` for keys without an end. `secrets` learns them.
    ///
    /// # Errors
    /// The job has no keys and no token, or AWS refuses the token.
    pub(super) async fn keys(
        &self,
        http: &SecretHttpClient,
        secrets: &Secrets,
        rights: SecretRights,
    ) -> Result<(AwsCredentials, Option<Duration>), SecretProblem> {
        let missing = |what: String| SecretProblem::NoCredentials(what);
        let (role, token, sts) = match self {
            Self::Keys(keys) => {
                let keys = keys.clone();
                let why = "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set in this job";
                return Ok((keys.ok_or_else(|| missing(why.to_owned()))?, None));
            }
            Self::Role {
                role,
                preview_role,
                token,
                sts,
            } => match (rights, preview_role) {
                (SecretRights::Versions, Some(preview_role)) => (preview_role, token, sts),
                _ => (role, token, sts),
            },
        };
        let token = match token {
            RoleToken::Job(None) => {
                let why = "this job gets no OIDC token; it needs `permissions: {id-token: write}`";
                return Err(missing(why.to_owned()));
            }
            RoleToken::Job(Some(identity)) => identity.job_token(http, secrets).await?,
            RoleToken::File(path) => {
                let read = tokio::fs::read_to_string(path).await;
                let read = read.map_err(|error| missing(format!("AWS_WEB_IDENTITY_TOKEN_FILE: {error}")))?;
                Zeroizing::new(read.trim().to_owned())
            }
        };
        let form = Zeroizing::new(
            form_urlencoded::Serializer::new(String::new())
                .extend_pairs([
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", "konverge"),
                    ("WebIdentityToken", &token),
                ])
                .finish(),
        );
        let answer = http.send(|client| {
            let request = client.post(sts).body(form.to_string());
            request.header("content-type", "application/x-www-form-urlencoded")
        });
        let answer = answer.await?;
        let text = String::from_utf8_lossy(&answer.body);
        if !answer.status.is_success() {
            let said = element(&text, "Message").unwrap_or("no reason given");
            return Err(SecretProblem::Login {
                status: answer.status.as_u16(),
                why: format!("could not assume the role `{role}`: {}", http.shown(said)),
            });
        }
        let part = |name: &str| {
            let found = element(&text, name).map(|found| Zeroizing::new(found.to_owned()));
            found.ok_or_else(|| unexpected(format!("the login has no `{name}` in its answer")))
        };
        let keys = AwsCredentials {
            access_key: part("AccessKeyId")?.to_string(),
            secret_key: part("SecretAccessKey")?,
            session_token: Some(part("SessionToken")?),
        };
        for secret in [&keys.secret_key].into_iter().chain(&keys.session_token) {
            secrets.learn(secret);
        }
        let end = element(&text, "Expiration").and_then(|end| end.parse::<Timestamp>().ok());
        let lasts =
            end.map(|end| Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default());
        Ok((keys, lasts.or(Some(Duration::from_secs(900)))))
    }
}

/// The text of the first XML element with this name. Keys, tokens and times need no unescaping.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}
