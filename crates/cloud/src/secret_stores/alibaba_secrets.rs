//! Secrets of Alibaba Cloud's KMS, by name.
//!
//! <https://www.alibabacloud.com/help/en/kms/key-management-service/developer-reference/api-kms-2016-01-20-getsecretvalue>

use async_trait::async_trait;
use serde_json::Value;

use super::{
    AlibabaSettings, FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore,
    alibaba_client::AlibabaClient, http::unexpected, secret_document::zeroize_json,
};
use konverge_secrets::{SecretValue, Secrets, decode_base64};

/// The stage of the current version.
const CURRENT: &str = "ACSCurrent";
/// Number of versions on a page.
const PAGE: &str = "100";
/// The maximum number of pages of versions that are read.
const PAGES: usize = 40;

/// The secrets of a region.
pub struct AlibabaSecretsStore {
    client: AlibabaClient,
}

impl AlibabaSecretsStore {
    /// Creates the store. The keys of its logins are added to `secrets`, which masks them.
    pub fn new(settings: AlibabaSettings, secrets: Secrets) -> Self {
        Self {
            client: AlibabaClient::new(settings, secrets),
        }
    }
}

#[async_trait]
impl SecretStore for AlibabaSecretsStore {
    async fn log_in(&self, _: SecretRights) -> Result<(), SecretProblem> {
        self.client.keys().await.map(drop)
    }

    async fn version(&self, query: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        for number in 1..=PAGES {
            let number = number.to_string();
            // Without this parameter, the response lists only the versions with a stage, which are the
            // newest two.
            let is_asked = query.version.as_ref().map(|_| ("IncludeDeprecated", "true"));
            let parameters: Vec<_> = [
                ("SecretName", query.path.as_str()),
                ("PageNumber", number.as_str()),
                ("PageSize", PAGE),
            ]
            .into_iter()
            .chain(is_asked)
            .collect();
            let answer = self.client.call("ListSecretVersionIds", &parameters).await?;
            let versions = answer["VersionIds"]["VersionId"].as_array();
            let versions = versions.ok_or_else(|| unexpected("the answer has no versions"))?;
            let is_it = |version: &&Value| match &query.version {
                Some(wanted) => version["VersionId"] == **wanted,
                None => stages(version).any(|stage| stage == CURRENT),
            };
            if let Some(found) = versions.iter().find(is_it) {
                return version_of(found).map(Some);
            }
            if versions.len() < 100 {
                break;
            }
        }
        Err(SecretProblem::Missing(None))
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let mut parameters = vec![("SecretName", query.path.as_str())];
        if let Some(version) = &query.version {
            parameters.push(("VersionId", version));
        }
        let mut answer = self.client.call("GetSecretValue", &parameters).await?;
        let version = version_of(&answer);
        let is_binary = answer["SecretDataType"] == "binary";
        let data = match answer["SecretData"].take() {
            Value::String(text) => Some(SecretValue::from(text)),
            _ => None,
        };
        zeroize_json(&mut answer);
        let (version, mut value) = (
            version?,
            data.ok_or_else(|| unexpected("the answer has no `SecretData`"))?,
        );
        if query.version.as_ref().is_some_and(|wanted| *wanted != version) {
            return Err(unexpected(
                "a secret of this kind cannot be read by version, and its current version is another one",
            ));
        }
        if is_binary {
            let bytes = value.expose_text().and_then(decode_base64);
            value = SecretValue::new(bytes.ok_or_else(|| unexpected("the value is not base64"))?);
        }
        Ok(FetchedSecret::whole(value, Some(version)))
    }
}

fn stages(version: &Value) -> impl Iterator<Item = &str> {
    let stages = version["VersionStages"]["VersionStage"].as_array();
    stages.into_iter().flatten().filter_map(Value::as_str)
}

fn version_of(answer: &Value) -> Result<String, SecretProblem> {
    let version = answer["VersionId"].as_str().filter(|version| !version.is_empty());
    let version = version.ok_or_else(|| unexpected("the answer names no version"))?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stages_and_the_version_are_read_or_missing() {
        let version = json!({"VersionId": "v1", "VersionStages": {"VersionStage": ["ACSPrevious", CURRENT]}});
        assert_eq!(stages(&version).collect::<Vec<_>>(), ["ACSPrevious", CURRENT]);
        assert_eq!(version_of(&version).as_deref(), Ok("v1"));
        for without in [
            json!({}),
            json!({"VersionId": ""}),
            json!({"VersionId": 1, "VersionStages": []}),
        ] {
            assert_eq!(stages(&without).count(), 0);
            assert_eq!(
                version_of(&without),
                Err(unexpected("the answer names no version"))
            );
        }
    }
}
