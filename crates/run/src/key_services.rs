//! Opens the key services of `state.encrypt_to`, with the credentials of the job. No request is sent yet.

use std::sync::Arc;

use crate::{RunContext, secret_stores};
use konverge_cloud::secret_stores::{AzureKeyPlace, KeyService, TransitKeyPlace, VaultTransitKey};
use konverge_config::{Config, StateRecipient};
use konverge_state::NamedKeyService;

/// Returns the key services in the order of `state.encrypt_to`, and the age recipients.
pub(crate) fn open(run: &RunContext, config: &Config) -> (Vec<NamedKeyService>, Vec<String>) {
    let (mut services, mut age) = (Vec::new(), Vec::new());
    for (name, recipient) in config.state.recipients() {
        let secrets = run.secrets.clone();
        let service: Arc<dyn KeyService> = match recipient {
            StateRecipient::Age(recipient) => {
                age.push(recipient);
                continue;
            }
            StateRecipient::AwsKms { arn, region } => {
                Arc::new(secret_stores::aws_kms_key(run, arn, region, secrets))
            }
            StateRecipient::GoogleKms(name) => Arc::new(secret_stores::google_kms_key(run, name, secrets)),
            StateRecipient::AzureKeyVault { vault, name } => Arc::new(secret_stores::azure_key(
                run,
                AzureKeyPlace { vault, name },
                secrets,
            )),
            StateRecipient::AliKms { arn, region } => {
                Arc::new(secret_stores::alibaba_kms_key(run, arn, region, secrets))
            }
            StateRecipient::VaultTransit { store, mount, key } => {
                let Some(configured) = config.secrets.stores.get(&store) else {
                    continue;
                };
                let server = secret_stores::vault_server(run, configured);
                Arc::new(VaultTransitKey::new(
                    TransitKeyPlace { mount, key },
                    server,
                    secrets,
                ))
            }
        };
        let name = name.to_owned();
        services.push(NamedKeyService { name, service });
    }
    (services, age)
}
