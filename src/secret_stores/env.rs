//! Environment variables of the job, such as GitHub's own secrets.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{
    FetchedSecret, SecretDocument, SecretProblem, SecretQuery, SecretRights, SecretStore, SecretStoreError,
};
use crate::secrets::SecretValue;

/// The environment of the job as a store. It has no versions.
pub struct EnvStore {
    name: String,
    environment: BTreeMap<String, String>,
}

impl EnvStore {
    pub fn new(name: String, environment: BTreeMap<String, String>) -> Self {
        Self { name, environment }
    }
}

#[async_trait]
impl SecretStore for EnvStore {
    async fn version(&self, _: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretStoreError> {
        Ok(None)
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretStoreError> {
        let value = self.environment.get(&query.path);
        let missing = || SecretStoreError::new(&self.name, &query.path, SecretProblem::NotSet);
        Ok(FetchedSecret {
            document: SecretDocument::Whole(SecretValue::from(value.ok_or_else(missing)?.clone())),
            version: None,
        })
    }
}
