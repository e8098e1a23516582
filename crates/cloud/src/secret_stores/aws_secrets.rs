//! AWS Secrets Manager.
//!
//! <https://docs.aws.amazon.com/secretsmanager/latest/apireference/Welcome.html>

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    aws_client::{AwsClient, AwsSettings},
    http::unexpected,
    secret_document::zeroize_json,
};
use konverge_secrets::{SecretValue, Secrets, decode_base64};

/// The label of the version that AWS returns by default.
const CURRENT: &str = "AWSCURRENT";

/// The secrets of an account in a region.
pub struct AwsSecretsStore {
    client: AwsClient,
}

impl AwsSecretsStore {
    /// Creates the store. The keys of its logins are added to `secrets`, which masks them.
    pub fn new(settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            client: AwsClient::new("secretsmanager", settings, secrets),
        }
    }
}

#[async_trait]
impl SecretStore for AwsSecretsStore {
    async fn log_in(&self, rights: SecretRights) -> Result<(), SecretProblem> {
        self.client.keys(rights).await.map(drop)
    }

    async fn version(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretProblem> {
        let request = json!({"SecretId": query.path});
        let about = self
            .client
            .call("secretsmanager.DescribeSecret", &request, rights)
            .await?;
        if about.get("DeletedDate").is_some_and(|date| !date.is_null()) {
            return Err(SecretProblem::Missing(None));
        }
        if let Some(version) = &query.version {
            // A version without a label exists, but is not listed.
            return Ok(Some(version.clone()));
        }
        let versions = about["VersionIdsToStages"].as_object();
        let is_current = |labels: &Value| {
            let labels = labels.as_array();
            labels.is_some_and(|labels| labels.iter().any(|label| label == CURRENT))
        };
        let mut versions = versions.into_iter().flatten();
        let current = versions.find(|(_, labels)| is_current(labels));
        let current = current.ok_or(SecretProblem::Missing(None))?;
        Ok(Some(current.0.clone()))
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let mut request = json!({"SecretId": query.path});
        if let Some(version) = &query.version {
            request["VersionId"] = json!(version);
        }
        let target = "secretsmanager.GetSecretValue";
        let mut answer = self.client.call(target, &request, SecretRights::Values).await?;
        let version = answer["VersionId"].as_str().map(str::to_owned);
        let value = match (answer["SecretString"].take(), &answer["SecretBinary"]) {
            (Value::String(text), _) => SecretValue::from(text),
            (_, Value::String(text)) => {
                let bytes = decode_base64(text).ok_or_else(|| unexpected("its bytes are not base64"))?;
                SecretValue::new(bytes)
            }
            _ => return Err(unexpected("the answer has no value")),
        };
        zeroize_json(&mut answer);
        Ok(FetchedSecret::whole(value, version))
    }
}
