//! [`GoogleLogin`]: tokens of Google from workload identity federation, from the key of a service account, or
//! from the metadata server of the machine.
//!
//! <https://google.aip.dev/auth/4117>,
//! <https://developers.google.com/identity/protocols/oauth2/service-account>

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use url::Url;

use super::{
    AccessToken, CloudEnvironment, CloudError, addresses,
    credentials_file::{CredentialsFile, ExternalAccount, ServiceAccountKey},
    http_client::{self, LoginClient},
    job_token,
    shared_credentials::SharedCredentials,
    token::remaining,
};
use konverge_base::variables;

/// The scope needed to request a token of a service account.
const IMPERSONATION_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The scopes for a GKE cluster: access, and the email address that its role bindings use.
const GKE_SCOPE: &str =
    "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email";
const PROVIDER: &str = variables::GOOGLE_WORKLOAD_IDENTITY_PROVIDER;
const ACCOUNT: &str = variables::GOOGLE_SERVICE_ACCOUNT_EMAIL;
const HOSTS: [&str; 1] = [".googleapis.com"];
const TOKEN_URL: &str = "https://sts.googleapis.com/v1/token";
/// Assumed lifetime of a token if the response does not state it.
const HOUR: Duration = Duration::from_secs(3600);

/// A login at Google.
#[derive(Debug, Clone)]
pub struct GoogleLogin {
    environment: CloudEnvironment,
    /// The service account that the configuration names, and its token.
    account: Option<(String, Arc<SharedCredentials<String>>)>,
}

impl GoogleLogin {
    /// Creates a login from environment variables.
    pub fn new(environment: CloudEnvironment) -> Self {
        Self {
            environment,
            account: None,
        }
    }

    /// Creates a login of stacks as this service account by workload identity federation. All clones share
    /// its token.
    pub fn of_login(account: String, provider: Option<&str>, environment: CloudEnvironment) -> Self {
        Self {
            environment: environment.with(PROVIDER, provider),
            account: Some((account, Arc::default())),
        }
    }

    /// Returns the service account that the configuration names.
    pub(super) fn account(&self) -> Option<&str> {
        self.account.as_ref().map(|(account, _)| account.as_str())
    }

    /// Returns true if a workload identity provider is named and the job may request a token for it.
    pub fn is_by_job(&self) -> bool {
        self.environment.has(PROVIDER) && job_token::is_offered(&self.environment)
    }

    /// Returns true if the environment configures workload identity federation, by a provider or by a file.
    pub fn is_federated(&self) -> bool {
        let file = || CredentialsFile::of_environment(&self.environment);
        self.is_by_job() || matches!(file(), Some(Ok(CredentialsFile::ExternalAccount(_))))
    }

    /// Returns a token for a GKE cluster.
    ///
    /// # Errors
    /// The errors of [`GoogleLogin::token`].
    pub async fn gke_token(&self) -> Result<AccessToken, CloudError> {
        self.token(GKE_SCOPE).await
    }

    /// Returns a token for scopes, which are separated by spaces.
    ///
    /// # Errors
    /// Google refuses the login, or a credentials file is invalid.
    pub async fn token(&self, scope: &str) -> Result<AccessToken, CloudError> {
        let client = LoginClient::new()?;
        if let Some((account, shared)) = &self.account {
            let (bearer, lifetime) = shared.get(|| self.account_token(&client, account)).await?;
            return Ok(AccessToken { bearer, lifetime });
        }
        if self.is_by_job() {
            return self
                .job_exchange(&client, self.environment.var(ACCOUNT), scope)
                .await;
        }
        match CredentialsFile::of_environment(&self.environment).transpose()? {
            Some(CredentialsFile::ExternalAccount(account)) => {
                let subject = account.subject_token(&client).await?;
                Exchange::of_file(&account)?.run(&client, &subject, scope).await
            }
            Some(CredentialsFile::ServiceAccount(key)) => key.token(&client, scope).await,
            None => self.machine_token(&client).await,
        }
    }

    /// Returns a token of the account that the configuration names, with all scopes that Konverge needs.
    async fn account_token(
        &self,
        client: &LoginClient,
        account: &str,
    ) -> Result<(String, Duration), CloudError> {
        let token = if self.is_by_job() {
            self.job_exchange(client, Some(account), GKE_SCOPE).await?
        } else if let Some(CredentialsFile::ExternalAccount(file)) =
            CredentialsFile::of_environment(&self.environment).transpose()?
        {
            let subject = file.subject_token(client).await?;
            let exchange = Exchange::of_file(&file)?.acting_as(account)?;
            exchange.run(client, &subject, GKE_SCOPE).await?
        } else {
            return Err(CloudError::NoIdentity {
                cloud: "Google Cloud",
                expected: "GOOGLE_WORKLOAD_IDENTITY_PROVIDER in a job with `id-token: write`",
            });
        };
        Ok((token.bearer, token.lifetime))
    }

    /// Exchanges the OIDC token that GitHub gives the job.
    async fn job_exchange(
        &self,
        client: &LoginClient,
        account: Option<&str>,
        scope: &str,
    ) -> Result<AccessToken, CloudError> {
        let provider = self.environment.var(PROVIDER).unwrap_or_default();
        let audience = format!("https://iam.googleapis.com/{provider}");
        let subject = job_token::request(client, &self.environment, Some(&audience)).await?;
        let subject = subject.ok_or(CloudError::NoIdentity {
            cloud: "Google Cloud",
            expected: "`id-token: write` in the permissions of the job",
        })?;
        let exchange = Exchange::of_provider(provider, account)?;
        exchange.run(client, &subject, scope).await
    }

    async fn machine_token(&self, client: &LoginClient) -> Result<AccessToken, CloudError> {
        let host = self.environment.var(variables::GCE_METADATA_HOST);
        let host = host.unwrap_or("metadata.google.internal");
        let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
        let request = client.get(url).header("metadata-flavor", "Google");
        let what = "the token of this machine";
        access_token(&http_client::json(request, what).await?, what)
    }
}

/// The parameters for the exchange of another issuer's token.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    audience: String,
    subject_token_type: String,
    url: Url,
    /// The address at which a service account's token is requested with the exchanged one; `None` to use the
    /// exchanged token itself.
    impersonation: Option<Url>,
}

impl Exchange {
    fn of_file(account: &ExternalAccount) -> Result<Self, CloudError> {
        let impersonation = account.service_account_impersonation_url.as_deref();
        let setting = "`service_account_impersonation_url` of the credentials file";
        Ok(Self {
            audience: account.audience.clone(),
            subject_token_type: account.subject_token_type.clone(),
            url: addresses::of_cloud("`token_url` of the credentials file", &account.token_url, &HOSTS)?,
            impersonation: impersonation
                .map(|url| addresses::of_cloud(setting, url, &HOSTS))
                .transpose()?,
        })
    }

    /// Returns the same exchange, but for a token of this service account.
    fn acting_as(mut self, account: &str) -> Result<Self, CloudError> {
        let own = impersonation(account)?;
        let url = match self.impersonation.take() {
            Some(mut of_file) => {
                of_file.set_path(own.path());
                of_file
            }
            None => own,
        };
        self.impersonation = Some(url);
        Ok(self)
    }

    /// Returns the exchange of a job's token at a provider of a workload identity pool.
    fn of_provider(provider: &str, account: Option<&str>) -> Result<Self, CloudError> {
        let impersonation = account.map(impersonation);
        Ok(Self {
            audience: format!("//iam.googleapis.com/{provider}"),
            subject_token_type: "urn:ietf:params:oauth:token-type:jwt".to_owned(),
            url: addresses::of_cloud(PROVIDER, TOKEN_URL, &HOSTS)?,
            impersonation: impersonation.transpose()?,
        })
    }

    async fn run(&self, client: &LoginClient, subject: &str, scope: &str) -> Result<AccessToken, CloudError> {
        let first_scope = match self.impersonation {
            Some(_) => IMPERSONATION_SCOPE,
            None => scope,
        };
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("audience", self.audience.as_str()),
            ("subject_token_type", self.subject_token_type.as_str()),
            ("subject_token", subject),
            ("scope", first_scope),
        ];
        let what = "a token of Google";
        let request = client.post_form(self.url.clone(), &fields);
        let exchanged = access_token(&http_client::json(request, what).await?, what)?;
        let Some(url) = &self.impersonation else {
            return Ok(exchanged);
        };
        let scopes: Vec<_> = scope.split(' ').collect();
        let request = client.post(url.clone()).bearer_auth(exchanged.bearer);
        let what = "the service account's token";
        let answer = http_client::json(request.json(&json!({"scope": scopes})), what).await?;
        Ok(AccessToken {
            bearer: http_client::field(&answer, "accessToken", what)?,
            lifetime: remaining(answer["expireTime"].as_str()),
        })
    }
}

/// Returns the address at which a service account's token is requested.
fn impersonation(account: &str) -> Result<Url, CloudError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "@.-".contains(c);
    if !account.chars().all(is_name) {
        return Err(CloudError::setting(
            ACCOUNT,
            "it is not the address of a service account",
        ));
    }
    let url = format!(
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    );
    addresses::of_cloud(ACCOUNT, &url, &HOSTS)
}

impl ServiceAccountKey {
    async fn token(&self, client: &LoginClient, scope: &str) -> Result<AccessToken, CloudError> {
        let setting = "`token_uri` of the service account's key";
        let given = self
            .token_uri
            .as_deref()
            .unwrap_or("https://oauth2.googleapis.com/token");
        let url = addresses::of_cloud(setting, given, &HOSTS)?;
        let key = EncodingKey::from_rsa_pem(self.private_key.as_bytes());
        let unusable = |_| {
            CloudError::setting(
                "`private_key` of the service account's key",
                "it is not an RSA key",
            )
        };
        let key = key.map_err(unusable)?;
        let mut header = Header::new(Algorithm::RS256);
        header.kid.clone_from(&self.private_key_id);
        let now = Timestamp::now().as_second();
        let claims = json!({
            "iss": self.client_email, "scope": scope, "aud": url.as_str(), "iat": now, "exp": now + 3600,
        });
        let assertion = jsonwebtoken::encode(&header, &claims, &key).map_err(unusable)?;
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.as_str()),
        ];
        let what = "a token of Google";
        access_token(
            &http_client::json(client.post_form(url, &fields), what).await?,
            what,
        )
    }
}

fn access_token(answer: &Value, what: &str) -> Result<AccessToken, CloudError> {
    Ok(AccessToken {
        bearer: http_client::field(answer, "access_token", what)?,
        lifetime: answer["expires_in"].as_u64().map_or(HOUR, Duration::from_secs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses and the audience of <https://google.aip.dev/auth/4117>.
    #[test]
    fn a_provider_names_the_exchange() {
        let provider = "projects/1/locations/global/workloadIdentityPools/github/providers/konverge";
        let account = "konverge@my-project.iam.gserviceaccount.com";
        let exchange = Exchange::of_provider(provider, Some(account)).unwrap();
        let url = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/konverge@my-project.iam.gserviceaccount.com:generateAccessToken";
        assert_eq!(
            exchange,
            Exchange {
                audience: format!("//iam.googleapis.com/{provider}"),
                subject_token_type: "urn:ietf:params:oauth:token-type:jwt".to_owned(),
                url: "https://sts.googleapis.com/v1/token".parse().unwrap(),
                impersonation: Some(url.parse().unwrap()),
            }
        );
        assert_eq!(Exchange::of_provider(provider, None).unwrap().impersonation, None);
        assert!(Exchange::of_provider(provider, Some("a/../b?x")).is_err());
    }

    const PROVIDER_NAME: &str = "projects/1/locations/global/workloadIdentityPools/github/providers/a";

    fn job() -> CloudEnvironment {
        CloudEnvironment::default()
            .with(PROVIDER, PROVIDER_NAME)
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_URL, "https://runner.example/")
            .with(variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN, "bearer")
    }

    fn external(token_url: &str, impersonation: Option<&str>) -> String {
        json!({
            "type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": token_url,
            "service_account_impersonation_url": impersonation, "credential_source": {"file": "/nowhere"},
        })
        .to_string()
    }

    fn exchange(token_url: &str, impersonation: Option<&str>) -> Result<Exchange, CloudError> {
        match serde_json::from_str(&external(token_url, impersonation)).unwrap() {
            CredentialsFile::ExternalAccount(account) => Exchange::of_file(&account),
            CredentialsFile::ServiceAccount(_) => panic!("it is another type"),
        }
    }

    #[test]
    fn a_file_sends_a_token_to_google_alone() {
        let token = "https://sts.googleapis.com/v1/token";
        assert!(exchange(token, None).is_ok());
        assert!(exchange("https://sts.example.com/v1/token", None).is_err());
        assert!(exchange(token, Some("https://googleapis.com.example.com/")).is_err());
    }

    /// A file that acts as one account acts as the account of the stack, at the same address.
    #[test]
    fn the_account_of_the_configuration_replaces_that_of_the_file() {
        let token = "https://sts.googleapis.com/v1/token";
        let private = "https://iamcredentials-eu.googleapis.com/v1/projects/-/serviceAccounts/file@b:generateAccessToken";
        for (of_file, host) in [
            (Some(private), "iamcredentials-eu.googleapis.com"),
            (None, "iamcredentials.googleapis.com"),
        ] {
            let exchange = exchange(token, of_file).unwrap().acting_as("stack@b").unwrap();
            let url = exchange.impersonation.unwrap();
            assert_eq!(url.host_str(), Some(host));
            assert_eq!(
                url.path(),
                "/v1/projects/-/serviceAccounts/stack@b:generateAccessToken"
            );
        }
        for hostile in ["a/../b", "a?b", "a#b", "a:b", "a b", "ä@b"] {
            assert!(
                exchange(token, None).unwrap().acting_as(hostile).is_err(),
                "{hostile}"
            );
        }
    }

    #[test]
    fn federation_is_a_provider_in_a_job_or_an_external_account() {
        let login = |environment| GoogleLogin::new(environment).is_federated();
        assert!(login(job()));
        assert!(!login(job().without(&[PROVIDER])));
        assert!(!login(
            job().without(&[variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN])
        ));
        let key = r#"{"type": "service_account", "client_email": "a@b", "private_key": "k"}"#;
        let of_file = |text: &str| CloudEnvironment::default().with(variables::GOOGLE_CREDENTIALS, text);
        assert!(login(of_file(&external(TOKEN_URL, None))));
        assert!(!login(of_file(key)));
        assert!(!login(of_file("not understood")));
    }

    /// Neither the key of another account nor the machine's own identity stands in for it.
    #[tokio::test]
    async fn an_account_of_the_configuration_is_reached_by_federation_alone() {
        let key = r#"{"type": "service_account", "client_email": "a@b", "private_key": "k"}"#;
        for environment in [
            CloudEnvironment::default(),
            CloudEnvironment::default().with(variables::GOOGLE_CREDENTIALS, key),
            CloudEnvironment::default().with(variables::GCE_METADATA_HOST, "127.0.0.1:9"),
        ] {
            let login = GoogleLogin::of_login("stack@b".to_owned(), None, environment);
            let Err(error) = login.gke_token().await else {
                panic!("the job has no token for the account")
            };
            assert!(
                matches!(
                    error,
                    CloudError::NoIdentity {
                        cloud: "Google Cloud",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn a_key_that_is_no_key_is_not_shown_and_its_address_is_googles() {
        let client = LoginClient::new().unwrap();
        let key = |token_uri: &str| ServiceAccountKey {
            client_email: "a@b".to_owned(),
            private_key_id: None,
            private_key: "s3cret".to_owned(),
            token_uri: Some(token_uri.to_owned()),
        };
        let said = async |token_uri: &str| match key(token_uri).token(&client, "scope").await {
            Ok(_) => panic!("{token_uri} gave a token"),
            Err(error) => konverge_base::error::chain(&error),
        };
        let wrong = said("https://oauth2.googleapis.com/token").await;
        assert_eq!(
            wrong,
            "`private_key` of the service account's key: it is not an RSA key"
        );
        let elsewhere = said("https://oauth2.example.com/token").await;
        assert!(elsewhere.starts_with("`token_uri`"), "{elsewhere}");
    }
}
