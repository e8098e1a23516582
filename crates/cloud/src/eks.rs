//! [`EksLogin`]: a token for an EKS cluster, made with keys of AWS.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;

use super::{
    AccessToken, AwsLogin, CloudEnvironment, CloudError,
    aws::{STS_VERSION, aws_host},
    sigv4::PresignedGet,
};
use konverge_base::variables;

/// Time for which a cluster accepts a token after its signature.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// A login at an EKS cluster.
#[derive(Debug, Clone)]
pub struct EksLogin {
    aws: AwsLogin,
    cluster: String,
    region: Option<String>,
}

impl EksLogin {
    /// Creates a login at a cluster from environment variables. The default region is `AWS_REGION`.
    pub fn new(cluster: String, region: Option<String>, environment: CloudEnvironment) -> Self {
        let of_environment = environment.var(variables::AWS_REGION);
        let of_environment = of_environment.or_else(|| environment.var(variables::AWS_DEFAULT_REGION));
        let region = region.or_else(|| of_environment.map(str::to_owned));
        Self {
            aws: AwsLogin::new(environment),
            cluster,
            region,
        }
    }

    /// Creates a login at a cluster with this login at AWS.
    pub fn of_login(aws: AwsLogin, cluster: String, region: Option<String>) -> Self {
        Self { aws, cluster, region }
    }

    /// Returns true if the identity is a token that the job must request from GitHub, which published clients
    /// cannot do.
    pub fn is_by_job(&self) -> bool {
        self.aws.is_by_job()
    }

    /// Returns a token: a signed request `GetCallerIdentity`, which the cluster sends to AWS to learn who the
    /// caller is.
    ///
    /// # Errors
    /// The environment provides no identity or region, or AWS refuses the login.
    pub async fn token(&self) -> Result<AccessToken, CloudError> {
        let region = self.region.as_deref().ok_or(CloudError::NoIdentity {
            cloud: "AWS",
            expected: "AWS_REGION, or `--region` among the arguments in the kubeconfig",
        })?;
        let host = aws_host("sts", region)?;
        let (keys, keys_end) = self.aws.keys().await?;
        let request = PresignedGet {
            service: "sts",
            region,
            host: &host,
            query: &[("Action", "GetCallerIdentity"), ("Version", STS_VERSION)],
            headers: &[("x-k8s-aws-id", &self.cluster)],
            expires: 60,
        };
        let url = format!(
            "https://{host}/?{}",
            request.signed_query(&keys, Timestamp::now())
        );
        Ok(AccessToken {
            bearer: format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url)),
            lifetime: keys_end.map_or(LIFETIME, |end| end.min(LIFETIME)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> CloudEnvironment {
        CloudEnvironment::default()
            .with(variables::AWS_ACCESS_KEY_ID, "AKIDEXAMPLE")
            .with(variables::AWS_SECRET_ACCESS_KEY, "s3cret")
    }

    fn url(token: &AccessToken) -> String {
        let encoded = token.bearer.strip_prefix("k8s-aws-v1.").unwrap();
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn the_region_of_the_kubeconfig_goes_before_that_of_the_environment() {
        let environment = keys().with(variables::AWS_DEFAULT_REGION, "us-east-1");
        let both = environment.clone().with(variables::AWS_REGION, "us-west-2");
        for (region, environment, host) in [
            (Some("eu-central-1"), &both, "sts.eu-central-1.amazonaws.com"),
            (None, &both, "sts.us-west-2.amazonaws.com"),
            (None, &environment, "sts.us-east-1.amazonaws.com"),
        ] {
            let login = EksLogin::new("prod".to_owned(), region.map(str::to_owned), environment.clone());
            let token = login.token().await.unwrap();
            assert_eq!(token.lifetime, LIFETIME);
            let url = url(&token);
            assert!(
                url.starts_with(&format!("https://{host}/?Action=GetCallerIdentity&")),
                "{url}"
            );
            assert!(url.contains("X-Amz-SignedHeaders=host%3Bx-k8s-aws-id"), "{url}");
            assert!(!url.contains("s3cret"), "{url}");
        }
    }

    #[tokio::test]
    async fn without_a_region_nothing_is_signed() {
        let login = EksLogin::new("prod".to_owned(), None, keys());
        let error = login.token().await.unwrap_err();
        assert!(error.to_string().contains("`--region`"), "{error}");
        let hostile = Some("eu.example.com/".to_owned());
        let login = EksLogin::new("prod".to_owned(), hostile, keys());
        assert!(matches!(login.token().await, Err(CloudError::Setting { .. })));
    }
}
