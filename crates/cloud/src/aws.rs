//! [`AwsLogin`]: keys of AWS from the environment, from a role that trusts the token of the job, or from the
//! container's own endpoint.

use std::{sync::Arc, time::Duration};

use konverge_base::variables;
use konverge_http::xml_text;
use konverge_secrets::is_this_machine;
use url::Url;
use zeroize::Zeroizing;

use super::{
    AccessKeys, CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
    job_token,
    shared_credentials::SharedCredentials,
    token::remaining,
};

/// The audience that AWS expects in a job's token.
const AUDIENCE: &str = "sts.amazonaws.com";
/// The version of the Security Token Service's API.
pub(super) const STS_VERSION: &str = "2011-06-15";
const ROLE: &str = variables::AWS_ROLE_ARN;
const TOKEN_FILE: &str = variables::AWS_WEB_IDENTITY_TOKEN_FILE;
/// The hosts of the Security Token Service in a region, public or in a private network.
const STS_HOSTS: [&str; 3] = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"];
/// The endpoints for container credentials: of ECS and of EKS Pod Identity.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// A login at AWS.
#[derive(Debug, Clone)]
pub struct AwsLogin {
    environment: CloudEnvironment,
    /// The role to log in as, if the configuration names one.
    role: Option<Role>,
}

/// A role that trusts the job's token.
#[derive(Debug, Clone)]
struct Role {
    arn: String,
    /// The audience of the token.
    audience: String,
    /// The keys, if clones of the login share them.
    shared: Option<Arc<SharedCredentials<AccessKeys>>>,
}

impl AwsLogin {
    /// Creates a login from environment variables.
    pub fn new(environment: CloudEnvironment) -> Self {
        Self {
            environment,
            role: None,
        }
    }

    /// Creates a login as this role with the OIDC token that GitHub gives the job. Other identities in the
    /// environment are ignored. The default audience is that of AWS.
    pub fn of_role(role: String, audience: Option<String>, environment: CloudEnvironment) -> Self {
        Self {
            environment,
            role: Some(Role {
                arn: role,
                audience: audience.unwrap_or_else(|| AUDIENCE.to_owned()),
                shared: None,
            }),
        }
    }

    /// Creates a login of stacks as this role. Its token is in the file that `AWS_WEB_IDENTITY_TOKEN_FILE`
    /// names, or else comes from GitHub. All clones share its keys.
    pub fn of_login(role: String, environment: CloudEnvironment) -> Self {
        Self {
            environment,
            role: Some(Role {
                arn: role,
                audience: AUDIENCE.to_owned(),
                shared: Some(Arc::default()),
            }),
        }
    }

    /// Returns the role that the configuration names.
    pub(super) fn role(&self) -> Option<&str> {
        self.role.as_ref().map(|role| role.arn.as_str())
    }

    /// Returns true if the only identity is a role with a token that the job must request from GitHub.
    /// Published clients cannot do so: they need a file with the token.
    pub fn is_by_job(&self) -> bool {
        self.environment.has(ROLE)
            && !self.environment.has(variables::AWS_ACCESS_KEY_ID)
            && !self.environment.has(TOKEN_FILE)
            && job_token::is_offered(&self.environment)
    }

    /// Returns the keys and their remaining lifetime; `None` for keys that do not expire.
    ///
    /// # Errors
    /// The environment provides no identity, or AWS refuses it.
    pub async fn keys(&self) -> Result<(AccessKeys, Option<Duration>), CloudError> {
        let var = |name: &str| self.environment.var(name);
        if let Some(role) = &self.role {
            let (keys, lifetime) = match &role.shared {
                Some(shared) => shared.get(|| self.role_keys(role)).await?,
                None => self.role_keys(role).await?,
            };
            return Ok((keys, Some(lifetime)));
        }
        let keys = AccessKeys::from_values(
            var(variables::AWS_ACCESS_KEY_ID),
            var(variables::AWS_SECRET_ACCESS_KEY),
            var(variables::AWS_SESSION_TOKEN),
        );
        if let Some(keys) = keys {
            return Ok((keys, None));
        }
        let client = LoginClient::new()?;
        if let Some(role) = var(ROLE) {
            let token = job_token::from_file_or_runner(&client, &self.environment, TOKEN_FILE, AUDIENCE);
            if let Some(token) = token.await? {
                let (keys, lifetime) = self.assume_role(&client, role, &token).await?;
                return Ok((keys, Some(lifetime)));
            }
        }
        match self.container_endpoint()? {
            Some(url) => self.container_keys(&client, url).await,
            None => Err(CloudError::NoIdentity {
                cloud: "AWS",
                expected: "AWS_ROLE_ARN in a job with `id-token: write`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            }),
        }
    }

    async fn role_keys(&self, role: &Role) -> Result<(AccessKeys, Duration), CloudError> {
        let client = LoginClient::new()?;
        let token = match &role.shared {
            Some(_) => {
                job_token::from_file_or_runner(&client, &self.environment, TOKEN_FILE, &role.audience).await?
            }
            None => job_token::request(&client, &self.environment, Some(&role.audience)).await?,
        };
        let token = token.ok_or(CloudError::NoIdentity {
            cloud: "GitHub",
            expected: "`permissions: {id-token: write}` for this job",
        })?;
        self.assume_role(&client, &role.arn, &token).await
    }

    async fn assume_role(
        &self,
        client: &LoginClient,
        role: &str,
        token: &str,
    ) -> Result<(AccessKeys, Duration), CloudError> {
        let region = self.environment.var(variables::AWS_REGION);
        let region = region.or_else(|| self.environment.var(variables::AWS_DEFAULT_REGION));
        let endpoint = variables::AWS_ENDPOINT_URL_STS;
        let url = match (self.environment.var(endpoint), region) {
            (Some(url), _) => addresses::of_cloud(endpoint, url, &STS_HOSTS)?.to_string(),
            (None, Some(region)) => format!("https://{}/", aws_host("sts", region)?),
            (None, None) => "https://sts.amazonaws.com/".to_owned(),
        };
        let session = self
            .environment
            .var(variables::AWS_ROLE_SESSION_NAME)
            .unwrap_or("konverge");
        let fields = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", STS_VERSION),
            ("RoleArn", role),
            ("RoleSessionName", session),
            ("WebIdentityToken", token),
        ];
        let what = format!("the keys of the role `{}`", role.escape_debug());
        let answer = http_client::text(client.post_form(url, &fields), &what).await?;
        let answer = Zeroizing::new(answer);
        let element = |name: &str| {
            let found = xml_text(&answer, name).map(Zeroizing::new);
            found.ok_or_else(|| CloudError::refused(&what, format!("the answer has no `{name}`")))
        };
        let keys = AccessKeys {
            access_key: element("AccessKeyId")?.to_string(),
            secret_key: element("SecretAccessKey")?,
            session_token: Some(element("SessionToken")?),
        };
        Ok((keys, remaining(xml_text(&answer, "Expiration").as_deref())))
    }

    fn container_endpoint(&self) -> Result<Option<Url>, CloudError> {
        let relative = self
            .environment
            .var(variables::AWS_CONTAINER_CREDENTIALS_RELATIVE_URI);
        let full = variables::AWS_CONTAINER_CREDENTIALS_FULL_URI;
        let (setting, url) = match (relative, self.environment.var(full)) {
            (Some(path), _) => (
                variables::AWS_CONTAINER_CREDENTIALS_RELATIVE_URI,
                format!("http://169.254.170.2{path}"),
            ),
            (None, Some(url)) => (full, url.to_owned()),
            (None, None) => return Ok(None),
        };
        let url: Option<Url> = url.parse().ok();
        let is_endpoint =
            |url: &Url| CONTAINER_HOSTS.contains(&url.host_str().unwrap_or_default()) || is_this_machine(url);
        match url.filter(is_endpoint) {
            Some(url) => Ok(Some(url)),
            None => Err(CloudError::setting(
                setting,
                "it is not an endpoint of this container",
            )),
        }
    }

    async fn container_keys(
        &self,
        client: &LoginClient,
        url: Url,
    ) -> Result<(AccessKeys, Option<Duration>), CloudError> {
        let file = variables::AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE;
        let token = match self.environment.var(file) {
            Some(path) => {
                let read = tokio::fs::read_to_string(path).await;
                let token = read.map_err(|error| CloudError::setting(file, error))?;
                Some(token.trim().to_owned())
            }
            None => {
                let token = self.environment.var(variables::AWS_CONTAINER_AUTHORIZATION_TOKEN);
                token.map(str::to_owned)
            }
        };
        let request = match token {
            Some(token) => client.get(url).header("authorization", token),
            None => client.get(url),
        };
        let what = "the keys of the container";
        let answer = http_client::json(request, what).await?;
        let keys = AccessKeys {
            access_key: http_client::field(&answer, "AccessKeyId", what)?,
            secret_key: Zeroizing::new(http_client::field(&answer, "SecretAccessKey", what)?),
            session_token: Some(Zeroizing::new(http_client::field(&answer, "Token", what)?)),
        };
        Ok((keys, Some(remaining(answer["Expiration"].as_str()))))
    }
}

/// Returns the public host of a service in a region.
///
/// # Errors
/// The region contains characters that are not allowed in a region.
pub fn aws_host(service: &str, region: &str) -> Result<String, CloudError> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if region.is_empty() || !region.chars().all(is_name) {
        let why = format!("`{}` is not the name of a region", region.escape_debug());
        return Err(CloudError::setting("the region of AWS", why));
    }
    let end = if region.starts_with("cn-") { ".cn" } else { "" };
    Ok(format!("{service}.{region}.amazonaws.com{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [(&str, &str); 2] = [
        (variables::AWS_ACCESS_KEY_ID, "AKIDEXAMPLE"),
        (variables::AWS_SECRET_ACCESS_KEY, "s3cret"),
    ];
    const JOB: [(&str, &str); 2] = [
        (
            variables::ACTIONS_ID_TOKEN_REQUEST_URL,
            "https://runner.example/token",
        ),
        (variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN, "bearer"),
    ];
    const ARN: &str = "arn:aws:iam::111122223333:role/konverge";

    fn environment(variables: &[(&str, &str)]) -> CloudEnvironment {
        let all = variables.iter();
        all.fold(CloudEnvironment::default(), |all, (name, value)| {
            all.with(name, *value)
        })
    }

    #[tokio::test]
    async fn keys_of_the_environment_do_not_expire_and_keep_their_session_token() {
        let (keys, lifetime) = AwsLogin::new(environment(&KEYS)).keys().await.unwrap();
        assert_eq!((keys.access_key.as_str(), lifetime), ("AKIDEXAMPLE", None));
        assert!(keys.session_token.is_none() && !format!("{keys:?}").contains("s3cret"));
        let temporary = environment(&KEYS).with(variables::AWS_SESSION_TOKEN, "session");
        let (keys, _) = AwsLogin::new(temporary).keys().await.unwrap();
        assert_eq!(keys.session_token.unwrap().as_str(), "session");
    }

    #[tokio::test]
    async fn half_a_key_is_no_identity() {
        for half in KEYS {
            let error = AwsLogin::new(environment(&[half])).keys().await.unwrap_err();
            assert!(
                matches!(error, CloudError::NoIdentity { cloud: "AWS", .. }),
                "{error}"
            );
        }
    }

    /// The keys of the job must not stand in for a role that it may not take.
    #[tokio::test]
    async fn a_role_of_the_configuration_is_never_replaced_by_keys_of_the_environment() {
        for login in [
            AwsLogin::of_role(ARN.to_owned(), None, environment(&KEYS)),
            AwsLogin::of_login(ARN.to_owned(), environment(&KEYS)),
        ] {
            assert_eq!(login.role(), Some(ARN));
            let error = login.keys().await.unwrap_err();
            assert!(
                matches!(error, CloudError::NoIdentity { cloud: "GitHub", .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn only_a_role_without_keys_and_without_a_token_file_is_by_the_job() {
        let of = |more: &[(&str, &str)]| {
            let all = [&JOB[..], &[(ROLE, ARN)], more].concat();
            AwsLogin::new(environment(&all)).is_by_job()
        };
        assert!(of(&[]));
        assert!(!of(&KEYS));
        assert!(!of(&[(TOKEN_FILE, "/var/run/token")]));
        assert!(!AwsLogin::new(environment(&[(ROLE, ARN)])).is_by_job());
        assert!(!AwsLogin::new(environment(&JOB)).is_by_job());
    }

    #[test]
    fn keys_of_a_container_come_from_its_own_endpoint_alone() {
        let full = variables::AWS_CONTAINER_CREDENTIALS_FULL_URI;
        let relative = variables::AWS_CONTAINER_CREDENTIALS_RELATIVE_URI;
        for (setting, value, host) in [
            (
                full,
                "http://169.254.170.23/v1/credentials",
                Some("169.254.170.23"),
            ),
            (
                full,
                "http://[fd00:ec2::23]/v1/credentials",
                Some("[fd00:ec2::23]"),
            ),
            (full, "http://localhost:9/keys", Some("localhost")),
            (full, "http://169.254.169.254/latest/meta-data", None),
            (full, "https://keys.example.com/", None),
            (full, "http://169.254.170.2@example.com/", None),
            (full, "no URL", None),
            (relative, "/v2/credentials/1", Some("169.254.170.2")),
            // What follows the host must not become a part of it.
            (relative, ".example.com/keys", None),
            (relative, "@example.com/keys", None),
            (relative, ":80@example.com/keys", None),
        ] {
            let login = AwsLogin::new(environment(&[(setting, value)]));
            let found = login.container_endpoint();
            match host {
                Some(host) => assert_eq!(found.unwrap().unwrap().host_str(), Some(host), "{value}"),
                None => assert_eq!(
                    found,
                    Err(CloudError::setting(
                        setting,
                        "it is not an endpoint of this container"
                    )),
                    "{value}"
                ),
            }
        }
        assert_eq!(AwsLogin::new(environment(&[])).container_endpoint(), Ok(None));
    }

    #[tokio::test]
    async fn a_token_is_sent_to_no_other_host_than_that_of_aws() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "the-token\n").unwrap();
        let file = file.display().to_string();
        for (endpoint, region) in [
            ("https://sts.example.com/", "eu-central-1"),
            ("http://sts.amazonaws.com/", "eu-central-1"),
            ("", "eu-central-1.example.com/"),
            ("", "EU"),
        ] {
            let all = [
                (ROLE, ARN),
                (TOKEN_FILE, file.as_str()),
                (variables::AWS_ENDPOINT_URL_STS, endpoint),
                (variables::AWS_REGION, region),
            ];
            let error = AwsLogin::new(environment(&all)).keys().await.unwrap_err();
            assert!(
                matches!(error, CloudError::Setting { .. }),
                "{endpoint} {region}: {error}"
            );
        }
    }

    #[test]
    fn the_host_of_a_region_is_one_of_aws() {
        assert_eq!(
            aws_host("sts", "eu-central-1").unwrap(),
            "sts.eu-central-1.amazonaws.com"
        );
        assert_eq!(
            aws_host("kms", "cn-north-1").unwrap(),
            "kms.cn-north-1.amazonaws.com.cn"
        );
        for hostile in [
            "",
            "eu.example.com",
            "eu/../x",
            "eu@x",
            "eu:443",
            "ü",
            "EU-CENTRAL-1",
        ] {
            assert!(aws_host("sts", hostile).is_err(), "{hostile}");
        }
    }

    #[test]
    fn keys_that_expired_already_have_no_time_left() {
        assert_eq!(remaining(Some("2001-01-01T00:00:00Z")), Duration::ZERO);
        assert_eq!(remaining(Some("soon")), Duration::from_secs(3600));
        assert_eq!(remaining(None), Duration::from_secs(3600));
        let end = (jiff::Timestamp::now() + Duration::from_secs(600)).to_string();
        let left = remaining(Some(&end));
        assert!(
            left <= Duration::from_secs(600) && left > Duration::from_secs(500),
            "{left:?}"
        );
    }
}
