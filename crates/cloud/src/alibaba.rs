//! Logs in at Alibaba Cloud: with keys, or with the token of the job and a role that trusts its issuer.
//!
//! <https://www.alibabacloud.com/help/en/ram/developer-reference/api-sts-2015-04-01-assumerolewithoidc>

use std::{sync::Arc, time::Duration};

use zeroize::Zeroizing;

use super::{
    AccessKeys, CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
    job_token,
    shared_credentials::SharedCredentials,
};
use konverge_base::variables;

/// The audience of a job's token.
const AUDIENCE: &str = "sts.aliyuncs.com";
const ROLE: &str = variables::ALIBABA_CLOUD_ROLE_ARN;
const PROVIDER: &str = variables::ALIBABA_CLOUD_OIDC_PROVIDER_ARN;
const TOKEN_FILE: &str = variables::ALIBABA_CLOUD_OIDC_TOKEN_FILE;
const ENDPOINT: &str = variables::ALIBABA_CLOUD_STS_ENDPOINT;
/// Requested lifetime of a role's keys.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A login at Alibaba Cloud.
#[derive(Debug, Clone)]
pub struct AlibabaLogin {
    environment: CloudEnvironment,
    /// The keys, if clones of the login share them.
    shared: Option<Arc<SharedCredentials<AccessKeys>>>,
}

impl AlibabaLogin {
    /// Creates a login from environment variables.
    pub fn new(environment: CloudEnvironment) -> Self {
        Self {
            environment,
            shared: None,
        }
    }

    /// Creates a login of stacks as this role, with the OIDC token of the job. All clones share its keys.
    pub fn of_login(role: &str, provider: Option<&str>, environment: CloudEnvironment) -> Self {
        let environment = environment
            .without(&[
                variables::ALIBABA_CLOUD_ACCESS_KEY_ID,
                variables::ALIBABA_CLOUD_ACCESS_KEY_SECRET,
            ])
            .with(ROLE, role)
            .with(PROVIDER, provider);
        Self {
            environment,
            shared: Some(Arc::default()),
        }
    }

    /// Returns the role that the environment variables name.
    pub(super) fn role(&self) -> Option<&str> {
        self.environment.var(ROLE)
    }

    /// Returns the keys and their remaining lifetime; `None` for keys that do not expire.
    ///
    /// # Errors
    /// The environment provides no identity, or Alibaba refuses it.
    pub async fn keys(&self) -> Result<(AccessKeys, Option<Duration>), CloudError> {
        let var = |name: &str| self.environment.var(name);
        let keys = AccessKeys::from_values(
            var(variables::ALIBABA_CLOUD_ACCESS_KEY_ID),
            var(variables::ALIBABA_CLOUD_ACCESS_KEY_SECRET),
            var(variables::ALIBABA_CLOUD_SECURITY_TOKEN),
        );
        if let Some(keys) = keys {
            return Ok((keys, None));
        }
        let (keys, lifetime) = match &self.shared {
            Some(shared) => shared.get(|| self.role_keys()).await?,
            None => self.role_keys().await?,
        };
        Ok((keys, Some(lifetime)))
    }

    async fn role_keys(&self) -> Result<(AccessKeys, Duration), CloudError> {
        let var = |name: &str| self.environment.var(name);
        let nobody = CloudError::NoIdentity {
            cloud: "Alibaba Cloud",
            expected: "ALIBABA_CLOUD_ROLE_ARN and ALIBABA_CLOUD_OIDC_PROVIDER_ARN in a job with `id-token: write`, or ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        };
        let (Some(role), Some(provider)) = (var(ROLE), var(PROVIDER)) else {
            return Err(nobody);
        };
        let client = LoginClient::new()?;
        let token = job_token::from_file_or_runner(&client, &self.environment, TOKEN_FILE, AUDIENCE).await?;
        let token = token.ok_or(nobody)?;
        self.assume_role(&client, role, provider, &token).await
    }

    async fn assume_role(
        &self,
        client: &LoginClient,
        role: &str,
        provider: &str,
        token: &str,
    ) -> Result<(AccessKeys, Duration), CloudError> {
        let given = self
            .environment
            .var(ENDPOINT)
            .unwrap_or("https://sts.aliyuncs.com");
        let url = addresses::of_cloud(ENDPOINT, given, &["sts.aliyuncs.com", ".aliyuncs.com"])?;
        let seconds = LIFETIME.as_secs().to_string();
        let fields = [
            ("Action", "AssumeRoleWithOIDC"),
            ("Version", "2015-04-01"),
            ("Format", "JSON"),
            ("RoleArn", role),
            ("OIDCProviderArn", provider),
            ("OIDCToken", token),
            ("RoleSessionName", "konverge"),
            ("DurationSeconds", seconds.as_str()),
        ];
        let what = "keys of Alibaba Cloud";
        let answer = http_client::json(client.post_form(url, &fields), what).await?;
        let keys = &answer["Credentials"];
        let keys = AccessKeys {
            access_key: http_client::field(keys, "AccessKeyId", what)?,
            secret_key: Zeroizing::new(http_client::field(keys, "AccessKeySecret", what)?),
            session_token: Some(Zeroizing::new(http_client::field(keys, "SecurityToken", what)?)),
        };
        Ok((keys, LIFETIME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROVIDER_ARN: &str = "acs:ram::1:oidc-provider/github";

    fn job_keys() -> CloudEnvironment {
        CloudEnvironment::default()
            .with(variables::ALIBABA_CLOUD_ACCESS_KEY_ID, "of-the-job")
            .with(variables::ALIBABA_CLOUD_ACCESS_KEY_SECRET, "s3cret")
    }

    #[tokio::test]
    async fn keys_of_the_environment_do_not_expire() {
        let (keys, lifetime) = AlibabaLogin::new(job_keys()).keys().await.unwrap();
        assert_eq!((keys.access_key.as_str(), lifetime), ("of-the-job", None));
        assert!(keys.session_token.is_none());
        let temporary = job_keys().with(variables::ALIBABA_CLOUD_SECURITY_TOKEN, "sts");
        let (keys, _) = AlibabaLogin::new(temporary).keys().await.unwrap();
        assert_eq!(keys.session_token.unwrap().as_str(), "sts");
    }

    /// The keys of the job must not stand in for a role that it may not take.
    #[tokio::test]
    async fn a_role_of_the_configuration_is_never_replaced_by_keys_of_the_job() {
        for provider in [None, Some(PROVIDER_ARN)] {
            let login = AlibabaLogin::of_login("acs:ram::1:role/a", provider, job_keys());
            assert_eq!(login.role(), Some("acs:ram::1:role/a"));
            let Err(error) = login.keys().await else {
                panic!("the job has no token for the role")
            };
            assert!(matches!(error, CloudError::NoIdentity { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_is_sent_to_no_other_host_than_that_of_alibaba_cloud() {
        let client = LoginClient::new().unwrap();
        for endpoint in [
            "https://sts.example.com",
            "http://sts.aliyuncs.com",
            "https://aliyuncs.com.example.com",
        ] {
            let login = AlibabaLogin::new(CloudEnvironment::default().with(ENDPOINT, endpoint));
            let sent = login.assume_role(&client, "role", PROVIDER_ARN, "token").await;
            let Err(error) = sent else {
                panic!("{endpoint} got the token")
            };
            assert!(matches!(error, CloudError::Setting { .. }), "{endpoint}: {error}");
        }
    }
}
