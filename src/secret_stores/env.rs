//! Environment variables of the job, such as GitHub's own secrets.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{FetchedSecret, SecretDocument, SecretProblem, SecretQuery, SecretRights, SecretStore};
use crate::secrets::SecretValue;

/// The environment of the job as a store. It has no versions.
pub struct EnvStore {
    environment: BTreeMap<String, String>,
}

impl EnvStore {
    pub fn new(environment: BTreeMap<String, String>) -> Self {
        Self { environment }
    }
}

#[async_trait]
impl SecretStore for EnvStore {
    async fn version(&self, _: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        Ok(None)
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let value = self.environment.get(&query.path);
        Ok(FetchedSecret {
            document: SecretDocument::Whole(SecretValue::from(value.ok_or(SecretProblem::NotSet)?.clone())),
            version: None,
        })
    }
}
