//! The key services of `state.encrypt_to`, with the credentials of the job. Nothing is asked yet.

use std::sync::Arc;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::{RunContext, secret_stores};
use konverge_cloud::secret_stores::{
    AlibabaKmsKey, AwsKmsKey, AzureKey, GoogleKmsKey, SecretProblem, VaultTransitKey,
};
use konverge_config::{Config, StateRecipient};
use konverge_state::{KeyService, KeyServiceError};

/// The services in the order of `state.encrypt_to`, and the age recipients.
pub fn open(run: &RunContext, config: &Config) -> (Vec<Arc<dyn KeyService>>, Vec<String>) {
    let (mut services, mut age) = (Vec::<Arc<dyn KeyService>>::new(), Vec::new());
    for (name, recipient) in config.state.recipients() {
        let wrapping = match recipient {
            StateRecipient::Age(recipient) => {
                age.push(recipient);
                continue;
            }
            StateRecipient::AwsKms { arn, region } => {
                WrappingKey::Aws(secret_stores::aws_kms_key(run, arn, region, run.secrets.clone()))
            }
            StateRecipient::GoogleKms(name) => {
                WrappingKey::Google(secret_stores::google_kms_key(run, name, run.secrets.clone()))
            }
            StateRecipient::AzureKeyVault { vault, name } => {
                WrappingKey::Azure(secret_stores::azure_key(run, (vault, name), run.secrets.clone()))
            }
            StateRecipient::AliKms { arn, region } => {
                let secrets = run.secrets.clone();
                WrappingKey::Alibaba(secret_stores::alibaba_kms_key(run, arn, region, secrets))
            }
            StateRecipient::VaultTransit { store, mount, key } => {
                let Some(configured) = config.secrets.stores.get(&store) else {
                    continue;
                };
                let server = secret_stores::vault_settings(run, configured).server;
                let secrets = run.secrets.clone();
                WrappingKey::Vault(VaultTransitKey::new((mount, key), server, secrets))
            }
        };
        services.push(Arc::new(NamedKey {
            name: name.to_owned(),
            wrapping,
        }));
    }
    (services, age)
}

/// A key under its name in `state.encrypt_to`.
struct NamedKey {
    name: String,
    wrapping: WrappingKey,
}

enum WrappingKey {
    Alibaba(AlibabaKmsKey),
    Aws(AwsKmsKey),
    Azure(AzureKey),
    Google(GoogleKmsKey),
    Vault(VaultTransitKey),
}

#[async_trait]
impl KeyService for NamedKey {
    fn name(&self) -> &str {
        &self.name
    }

    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, KeyServiceError> {
        let wrapped = match &self.wrapping {
            WrappingKey::Alibaba(key) => key.wrap_key(secret, context).await,
            WrappingKey::Aws(key) => key.wrap_key(secret, context).await,
            WrappingKey::Azure(key) => key.wrap_key(secret, context).await,
            WrappingKey::Google(key) => key.wrap_key(secret, context).await,
            WrappingKey::Vault(key) => key.wrap_key(secret, context).await,
        };
        wrapped.map_err(error)
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, KeyServiceError> {
        let secret = match &self.wrapping {
            WrappingKey::Alibaba(key) => key.unwrap_key(wrapped, context).await,
            WrappingKey::Aws(key) => key.unwrap_key(wrapped, context).await,
            WrappingKey::Azure(key) => key.unwrap_key(wrapped, context).await,
            WrappingKey::Google(key) => key.unwrap_key(wrapped, context).await,
            WrappingKey::Vault(key) => key.unwrap_key(wrapped, context).await,
        };
        secret.map_err(error)
    }
}

fn error(problem: SecretProblem) -> KeyServiceError {
    KeyServiceError(match problem {
        SecretProblem::Unavailable { why, .. } => format!("does not answer: {why}"),
        problem => problem.to_string(),
    })
}
