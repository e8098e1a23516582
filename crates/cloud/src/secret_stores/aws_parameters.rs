//! The Parameter Store of AWS Systems Manager.
//!
//! <https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html>

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    aws_client::{AwsClient, AwsSettings},
    http::unexpected,
};
use konverge_secrets::{SecretValue, Secrets};

/// The parameters of an account in a region.
pub struct AwsParametersStore {
    client: AwsClient,
}

impl AwsParametersStore {
    /// Creates the store. The keys of its logins are added to `secrets`, which masks them.
    pub fn new(settings: AwsSettings, secrets: Secrets) -> Self {
        Self {
            client: AwsClient::new("ssm", settings, secrets),
        }
    }
}

#[async_trait]
impl SecretStore for AwsParametersStore {
    async fn log_in(&self, rights: SecretRights) -> Result<(), SecretProblem> {
        self.client.keys(rights).await.map(drop)
    }

    async fn version(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretProblem> {
        let filter = json!({"Key": "Name", "Option": "Equals", "Values": [query.path]});
        let request = json!({"ParameterFilters": [filter]});
        let found = self
            .client
            .call("AmazonSSM.DescribeParameters", &request, rights)
            .await?;
        let found = found["Parameters"].as_array().into_iter().flatten();
        let mut found = found.filter(|parameter| parameter["Name"] == query.path.as_str());
        let version = found.next().and_then(|parameter| parameter["Version"].as_u64());
        let version = version.ok_or(SecretProblem::Missing(None))?;
        Ok(Some(query.version.clone().unwrap_or_else(|| version.to_string())))
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let name = match &query.version {
            Some(version) => format!("{}:{version}", query.path),
            None => query.path.clone(),
        };
        let request = json!({"Name": name, "WithDecryption": true});
        let target = "AmazonSSM.GetParameter";
        let mut answer = self.client.call(target, &request, SecretRights::Values).await?;
        let version = answer["Parameter"]["Version"].as_u64();
        match answer.pointer_mut("/Parameter/Value").map(Value::take) {
            Some(Value::String(value)) => {
                let version = version.map(|version| version.to_string());
                Ok(FetchedSecret::whole(SecretValue::from(value), version))
            }
            _ => Err(unexpected("the answer has no value")),
        }
    }
}
