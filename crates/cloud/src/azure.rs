//! [`AzureLogin`]: tokens of Entra, requested with the OIDC token of the job or with a client secret.
//!
//! <https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow>

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use url::Url;

use super::{
    AccessToken, CloudEnvironment, CloudError, addresses,
    http_client::{self, LoginClient},
    job_token,
    shared_credentials::SharedCredentials,
};
use konverge_base::variables;

/// The audience that Entra expects in a job's token.
const AUDIENCE: &str = "api://AzureADTokenExchange";
/// The server application of the AKS clusters with managed Entra integration.
const AKS_SERVER: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";
const TOKEN_FILE: &str = variables::AZURE_FEDERATED_TOKEN_FILE;
/// Assumed lifetime of a token of GitHub that does not state one.
const TOKEN_LIFETIME: Duration = Duration::from_secs(300);
const SECRET: &str = variables::AZURE_CLIENT_SECRET;
/// Scopes that the `azurerm` provider requests, by the end of the name of Entra's host.
const MANAGEMENT: [(&str, &str); 3] = [
    (".us", "https://management.usgovcloudapi.net/.default"),
    (".cn", "https://management.chinacloudapi.cn/.default"),
    ("", "https://management.azure.com/.default"),
];
const AUTHORITY: &str = variables::AZURE_AUTHORITY_HOST;
/// The hosts of Entra: the public cloud, US governments and China.
const HOSTS: [&str; 4] = [
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.chinacloudapi.cn",
    "login.partner.microsoftonline.cn",
];

/// A login at Entra.
#[derive(Debug, Clone)]
pub struct AzureLogin {
    environment: CloudEnvironment,
    /// State that all clones of a login share.
    shared: Option<Arc<SharedLogin>>,
}

#[derive(Debug, Default)]
struct SharedLogin {
    /// The token of the job.
    job: SharedCredentials<String>,
    /// Set once Entra has accepted the job's token for the application.
    trust: SharedCredentials<()>,
}

impl AzureLogin {
    /// Creates a login from environment variables.
    pub fn new(environment: CloudEnvironment) -> Self {
        Self {
            environment,
            shared: None,
        }
    }

    /// Creates a login of stacks as this application, with the OIDC token of the job. All clones share that
    /// token.
    pub fn of_login(application: &str, tenant: Option<&str>, environment: CloudEnvironment) -> Self {
        let environment = environment
            .without(&[SECRET])
            .with(variables::AZURE_CLIENT_ID, application)
            .with(variables::AZURE_TENANT_ID, tenant);
        Self {
            environment,
            shared: Some(Arc::default()),
        }
    }

    /// Returns the client id of the application that the environment variables name.
    pub(super) fn application(&self) -> Option<&str> {
        self.environment.var(variables::AZURE_CLIENT_ID)
    }

    /// Returns the application, its tenant, and the OIDC token of the job that the application trusts. The
    /// provider exchanges that token by itself; this method exchanges it once before, so that a refusal stops
    /// the stack before any of its resources is touched.
    ///
    /// # Errors
    /// The environment names no tenant, there is no token, or Entra refuses it.
    pub async fn federated(&self) -> Result<(&str, &str, String), CloudError> {
        let (Some(application), Some(tenant)) = (
            self.application(),
            self.environment.var(variables::AZURE_TENANT_ID),
        ) else {
            return Err(CloudError::NoIdentity {
                cloud: "Azure",
                expected: "`tenant_id` in the login, or AZURE_TENANT_ID",
            });
        };
        let token = self.job_token().await?;
        if let Some(shared) = &self.shared {
            let exchange = async || Ok(((), self.token(self.management_scope()).await?.lifetime));
            shared.trust.get(exchange).await?;
        }
        Ok((application, tenant, token))
    }

    async fn job_token(&self) -> Result<String, CloudError> {
        let ask = async || {
            let client = LoginClient::new()?;
            let offered = job_token::from_file_or_runner(&client, &self.environment, TOKEN_FILE, AUDIENCE);
            let token = offered.await?.ok_or(CloudError::NoIdentity {
                cloud: "Azure",
                expected: "`id-token: write` in the permissions of the job, AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET",
            })?;
            let end = job_token::claims(&token).and_then(|claims| claims["exp"].as_i64());
            let left = end.map(|end| end.saturating_sub(Timestamp::now().as_second()));
            let left = left.and_then(|left| u64::try_from(left).ok());
            Ok((
                token.to_string(),
                left.map_or(TOKEN_LIFETIME, Duration::from_secs),
            ))
        };
        let (token, _) = match &self.shared {
            Some(shared) => shared.job.get(ask).await?,
            None => ask().await?,
        };
        Ok(token)
    }

    /// Returns the address of Entra in the cloud that the environment names.
    fn authority(&self) -> Result<Url, CloudError> {
        let given = self.environment.var(AUTHORITY);
        addresses::of_cloud(
            AUTHORITY,
            given.unwrap_or("https://login.microsoftonline.com/"),
            &HOSTS,
        )
    }

    /// Returns the scope that the `azurerm` provider requests.
    fn management_scope(&self) -> &'static str {
        let host = self.authority().ok();
        let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
        let mut all = MANAGEMENT.iter();
        all.find(|(end, _)| host.ends_with(end))
            .map_or("", |(_, scope)| *scope)
    }

    /// Returns true if the only identity is an application with a token that the job must request from
    /// GitHub. Published clients cannot do so: they need a file with the token.
    pub fn is_by_job(&self) -> bool {
        self.environment.has(variables::AZURE_CLIENT_ID)
            && self.environment.has(variables::AZURE_TENANT_ID)
            && !self.environment.has(SECRET)
            && !self.environment.has(TOKEN_FILE)
            && job_token::is_offered(&self.environment)
    }

    /// Returns a token for an AKS cluster. `server` is the cluster's own server application; `None` for the
    /// managed one.
    ///
    /// # Errors
    /// The errors of [`AzureLogin::token`].
    pub async fn aks_token(&self, server: Option<&str>) -> Result<AccessToken, CloudError> {
        let scope = format!("{}/.default", server.unwrap_or(AKS_SERVER));
        self.token(&scope).await
    }

    /// Returns a token for a scope.
    ///
    /// # Errors
    /// The environment provides no identity, or Entra refuses it.
    pub async fn token(&self, scope: &str) -> Result<AccessToken, CloudError> {
        let var = |name: &str| self.environment.var(name);
        let (Some(application), Some(tenant)) =
            (var(variables::AZURE_CLIENT_ID), var(variables::AZURE_TENANT_ID))
        else {
            return Err(CloudError::NoIdentity {
                cloud: "Azure",
                expected: "AZURE_CLIENT_ID and AZURE_TENANT_ID in a job with `id-token: write`, or AZURE_CLIENT_SECRET beside them",
            });
        };
        let mut url = self.authority()?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend([tenant, "oauth2", "v2.0", "token"]);
        }
        let client = LoginClient::new()?;
        let token;
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", application),
            ("scope", scope),
        ];
        match var(SECRET) {
            Some(secret) => fields.push(("client_secret", secret)),
            None => {
                token = self.job_token().await?;
                fields.push((
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                ));
                fields.push(("client_assertion", &token));
            }
        }
        let what = "a token of Entra";
        let answer = http_client::json(client.post_form(url, &fields), what).await?;
        Ok(AccessToken {
            bearer: http_client::field(&answer, "access_token", what)?,
            lifetime: Duration::from_secs(answer["expires_in"].as_u64().unwrap_or(3600)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> CloudEnvironment {
        CloudEnvironment::default()
            .with(variables::AZURE_CLIENT_ID, "application")
            .with(variables::AZURE_TENANT_ID, "tenant")
    }

    #[test]
    fn each_cloud_of_azure_has_its_own_scope() {
        for (authority, scope) in [
            ("", "https://management.azure.com/.default"),
            (
                "https://login.microsoftonline.us/",
                "https://management.usgovcloudapi.net/.default",
            ),
            (
                "https://login.partner.microsoftonline.cn/",
                "https://management.chinacloudapi.cn/.default",
            ),
        ] {
            let login = AzureLogin::new(named().with(AUTHORITY, authority));
            assert_eq!(login.management_scope(), scope, "{authority}");
        }
    }

    #[tokio::test]
    async fn a_secret_is_sent_to_no_other_host_than_that_of_entra() {
        for authority in [
            "https://login.example.com/",
            "http://login.microsoftonline.com/",
            "https://login.microsoftonline.com.example.com/",
        ] {
            let login = AzureLogin::new(named().with(SECRET, "s3cret").with(AUTHORITY, authority));
            let Err(error) = login.token("scope").await else {
                panic!("{authority} got the secret")
            };
            assert!(
                matches!(error, CloudError::Setting { .. }),
                "{authority}: {error}"
            );
            assert!(!error.to_string().contains("s3cret"));
        }
    }

    /// The secret of the job must not stand in for an application that it may not be.
    #[tokio::test]
    async fn a_login_of_the_configuration_is_never_replaced_by_the_secret_of_the_job() {
        let of_job = named().with(SECRET, "s3cret");
        let runner = of_job
            .clone()
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_URL, "https://runner.example/")
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN, "bearer");
        assert!(AzureLogin::of_login("another", Some("elsewhere"), runner).is_by_job());
        let login = AzureLogin::of_login("another", Some("elsewhere"), of_job);
        assert_eq!(login.application(), Some("another"));
        let error = login.federated().await.unwrap_err();
        assert!(
            matches!(error, CloudError::NoIdentity { cloud: "Azure", .. }),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_application_without_a_tenant_is_no_identity() {
        let login = AzureLogin::of_login("another", None, CloudEnvironment::default());
        let error = login.federated().await.unwrap_err();
        assert!(error.to_string().contains("`tenant_id`"), "{error}");
        for name in [variables::AZURE_CLIENT_ID, variables::AZURE_TENANT_ID] {
            let half = AzureLogin::new(named().without(&[name]).with(SECRET, "s3cret"));
            assert!(half.token("scope").await.is_err(), "without {name}");
        }
    }

    #[test]
    fn only_an_application_without_a_secret_and_a_token_file_is_by_the_job() {
        let job = named()
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_URL, "https://runner.example/")
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN, "bearer");
        assert!(AzureLogin::new(job.clone()).is_by_job());
        assert!(!AzureLogin::new(named()).is_by_job());
        for more in [SECRET, TOKEN_FILE] {
            assert!(
                !AzureLogin::new(job.clone().with(more, "x")).is_by_job(),
                "{more}"
            );
        }
    }
}
