//! [`StackIdentity`]: the cloud identities of a stack, which its providers and its cluster login use instead
//! of the job's own identity.

use std::time::Duration;

use zeroize::Zeroizing;

use super::{AlibabaLogin, AwsLogin, AzureLogin, CloudEnvironment, CloudError, GoogleLogin, JobIdentity};
use konverge_base::variables;

/// Prefixes of the environment variables of clouds.
const OF_CLOUDS: [&str; 9] = [
    "AWS_",
    "GOOGLE_",
    "GCLOUD_",
    "CLOUDSDK_",
    "GCE_",
    "ARM_",
    "AZURE_",
    "ALICLOUD_",
    "ALIBABA_CLOUD_",
];
/// Prefix of the variables with which a process could request a token of its own, and exchange it for any
/// identity that trusts the job.
const JOB_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_";
/// Time for which the `azurerm` provider can use the token that it gets for the job's token: Entra's shortest
/// lifetime. After that it would send the job's token again, which has expired by then.
const AZURE_LIFETIME: Duration = Duration::from_secs(3600);

/// Names and values of variables with short-lived credentials.
type ProviderVariables = Vec<(&'static str, Zeroizing<String>)>;

/// The logins of a stack, at most one for each cloud. All users of a login share its credentials.
#[derive(Debug, Clone, Default)]
pub struct StackIdentity {
    /// The name in the configuration, with its purpose.
    pub name: String,
    /// The role at AWS.
    pub aws: Option<AwsLogin>,
    /// The AWS roles in a kubeconfig for which this login is used.
    pub aws_roles: Vec<String>,
    /// The region for the stack's AWS providers.
    pub aws_region: Option<String>,
    /// The service account at Google Cloud.
    pub google: Option<GoogleLogin>,
    /// The application at Azure.
    pub azure: Option<AzureLogin>,
    /// The role at Alibaba Cloud.
    pub alibaba: Option<AlibabaLogin>,
}

impl StackIdentity {
    /// Returns true for a variable of the job that the stack's processes must not see: those of every cloud,
    /// even of a cloud where the stack has no login.
    pub fn hides(&self, variable: &str) -> bool {
        let mut hidden = OF_CLOUDS.into_iter().chain([JOB_TOKEN]);
        hidden.any(|start| variable.starts_with(start))
    }

    /// Returns the variables by which providers log in, and the shortest lifetime of their credentials;
    /// `None` if none expires.
    ///
    /// # Errors
    /// The job has no identity, or a cloud refuses it.
    pub async fn provider_variables(&self) -> Result<(ProviderVariables, Option<Duration>), CloudError> {
        let mut variables = Vec::new();
        let mut lifetimes = Vec::new();
        let mut set = |name, value: &str| variables.push((name, Zeroizing::new(value.to_owned())));
        if let Some(aws) = &self.aws {
            let (keys, lifetime) = aws.keys().await?;
            lifetimes.extend(lifetime);
            set(variables::AWS_ACCESS_KEY_ID, &keys.access_key);
            set(variables::AWS_SECRET_ACCESS_KEY, &keys.secret_key);
            keys.session_token
                .iter()
                .for_each(|token| set(variables::AWS_SESSION_TOKEN, token));
            self.aws_region
                .iter()
                .for_each(|region| set(variables::AWS_REGION, region));
        }
        if let Some(google) = &self.google {
            let token = google.gke_token().await?;
            lifetimes.push(token.lifetime);
            set("GOOGLE_OAUTH_ACCESS_TOKEN", &token.bearer);
        }
        if let Some(azure) = &self.azure {
            // The provider exchanges the job's token itself: it accepts no other short-lived credential.
            let (application, tenant, token) = azure.federated().await?;
            lifetimes.push(AZURE_LIFETIME);
            set("ARM_CLIENT_ID", application);
            set("ARM_TENANT_ID", tenant);
            set("ARM_OIDC_TOKEN", &token);
            set("ARM_USE_OIDC", "true");
        }
        if let Some(alibaba) = &self.alibaba {
            let (keys, lifetime) = alibaba.keys().await?;
            lifetimes.extend(lifetime);
            let token = keys.session_token.unwrap_or_default();
            // Older versions of the provider read the first three names.
            for [key, secret, session] in [
                [
                    "ALICLOUD_ACCESS_KEY",
                    "ALICLOUD_SECRET_KEY",
                    "ALICLOUD_SECURITY_TOKEN",
                ],
                [
                    variables::ALIBABA_CLOUD_ACCESS_KEY_ID,
                    variables::ALIBABA_CLOUD_ACCESS_KEY_SECRET,
                    variables::ALIBABA_CLOUD_SECURITY_TOKEN,
                ],
            ] {
                set(key, &keys.access_key);
                set(secret, &keys.secret_key);
                set(session, &token);
            }
        }
        Ok((variables, lifetimes.into_iter().min()))
    }

    /// Describes the identities, for messages.
    pub fn describe(&self) -> String {
        let aws = self.aws.as_ref().and_then(AwsLogin::role);
        let google = self.google.as_ref().and_then(GoogleLogin::account);
        let azure = self.azure.as_ref().and_then(AzureLogin::application);
        let alibaba = self.alibaba.as_ref().and_then(AlibabaLogin::role);
        let named = [aws, google, azure, alibaba].into_iter().flatten();
        let named: Vec<_> = named.map(|name| format!("`{}`", name.escape_debug())).collect();
        named.join(", ")
    }
}

/// Returns the identity of this job at GitHub: the `sub` of its token. `None` in a job that may not request
/// one.
///
/// # Errors
/// GitHub returns no token, or one without `sub`.
pub async fn job_subject(environment: &CloudEnvironment) -> Result<Option<String>, CloudError> {
    let identity = JobIdentity::new(Some("konverge".to_owned()), environment.clone());
    let Some(token) = identity.token().await? else {
        return Ok(None);
    };
    let claims = super::job_token::claims(&token);
    let subject = claims.as_ref().and_then(|claims| claims["sub"].as_str());
    match subject {
        Some(subject) => Ok(Some(subject.to_owned())),
        None => Err(CloudError::refused("the job's own token", "it has no subject")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_every_cloud_are_hidden_and_no_others() {
        let aws = AwsLogin::of_login(
            "arn:aws:iam::111122223333:role/a".to_owned(),
            CloudEnvironment::default(),
        );
        let identity = StackIdentity {
            aws: Some(aws),
            ..StackIdentity::default()
        };
        for hidden in [
            "AWS_ACCESS_KEY_ID",
            "AWS_PROFILE",
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
            "GOOGLE_CREDENTIALS",
            "CLOUDSDK_CORE_ACCOUNT",
            "ARM_CLIENT_SECRET",
            "AZURE_CLIENT_ID",
            "ALICLOUD_ACCESS_KEY",
            "ALIBABA_CLOUD_PROFILE",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
            "ACTIONS_ID_TOKEN_REQUEST_URL",
        ] {
            assert!(identity.hides(hidden), "{hidden}");
        }
        for seen in ["PATH", "HTTPS_PROXY", "VAULT_TOKEN", "GITHUB_SHA"] {
            assert!(!identity.hides(seen), "{seen}");
        }
    }

    #[test]
    fn a_description_names_each_identity_once_and_escapes_it() {
        let environment = CloudEnvironment::default;
        let mut identity = StackIdentity {
            alibaba: Some(AlibabaLogin::of_login("acs:ram::1:role/a", None, environment())),
            google: Some(GoogleLogin::of_login("a@b\n".to_owned(), None, environment())),
            ..StackIdentity::default()
        };
        assert_eq!(identity.describe(), "`a@b\\n`, `acs:ram::1:role/a`");
        identity.azure = Some(AzureLogin::of_login("application", None, environment()));
        assert_eq!(
            identity.describe(),
            "`a@b\\n`, `application`, `acs:ram::1:role/a`"
        );
        assert_eq!(StackIdentity::default().describe(), "");
    }

    /// One login that fails fails the whole: the provider of that cloud would look for another identity.
    #[tokio::test]
    async fn the_variables_of_providers_are_complete_or_an_error() {
        let keys = CloudEnvironment::default()
            .with(variables::AWS_ACCESS_KEY_ID, "AKIDEXAMPLE")
            .with(variables::AWS_SECRET_ACCESS_KEY, "s3cret");
        let mut identity = StackIdentity {
            aws: Some(AwsLogin::new(keys)),
            aws_region: Some("eu-central-1".to_owned()),
            ..StackIdentity::default()
        };
        let (given, lifetime) = identity.provider_variables().await.unwrap();
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(
            given,
            [
                ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
                ("AWS_SECRET_ACCESS_KEY", "s3cret"),
                ("AWS_REGION", "eu-central-1"),
            ]
        );
        assert_eq!(lifetime, None, "these keys do not expire");
        let nobody = CloudEnvironment::default();
        identity.google = Some(GoogleLogin::of_login("a@b".to_owned(), None, nobody));
        assert!(identity.provider_variables().await.is_err());
    }

    #[tokio::test]
    async fn a_job_that_may_not_ask_for_a_token_has_no_subject() {
        assert_eq!(job_subject(&CloudEnvironment::default()).await, Ok(None));
    }
}
