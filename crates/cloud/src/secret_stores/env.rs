//! Environment variables of the job, such as GitHub's own secrets.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore};
use konverge_secrets::{SecretValue, is_of_run};

/// The environment of the job as a store, without the variables that Konverge logs in with. It has no
/// versions.
pub struct EnvStore {
    environment: BTreeMap<String, String>,
}

impl EnvStore {
    /// Creates a store of these variables, without those that Konverge logs in with.
    pub fn new(mut environment: BTreeMap<String, String>) -> Self {
        environment.retain(|name, _| !is_of_run(name));
        Self { environment }
    }
}

#[async_trait]
impl SecretStore for EnvStore {
    async fn version(&self, _: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        Ok(None)
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let value = self.environment.get(&query.path).ok_or(SecretProblem::NotSet)?;
        Ok(FetchedSecret::whole(SecretValue::from(value.clone()), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_run_logs_in_with_is_not_given() {
        let names = [
            "PGPASSWORD",
            "MYSQL_PWD",
            "OSS_ACCESS_KEY_SECRET",
            "GITHUB_TOKEN",
            "PAY_TOKEN",
        ];
        let variable = |name: &str| (name.to_owned(), "value".to_owned());
        let store = EnvStore::new(names.map(variable).into());
        for name in names {
            let query = SecretQuery {
                path: name.to_owned(),
                version: None,
            };
            assert_eq!(store.read(&query).await.is_ok(), name == "PAY_TOKEN", "{name}");
        }
    }
}
