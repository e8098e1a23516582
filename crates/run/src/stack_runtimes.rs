//! [`StackRuntimes`]: the runtimes of each stack, with the login of its rule and the provider settings that it may use.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Mutex;

use crate::{
    infrastructure::Infrastructure,
    logins::{LoginUse, StackLogin},
};
use konverge_config::EffectiveStack;
use konverge_engine::RuntimeRegistry;
use konverge_kubernetes::Kubernetes;
use konverge_terraform::{ProviderLogin, Terraform};

/// The key of cached runtimes: the login, and the provider values that the Specs may set.
type RuntimeKey = (Option<(String, LoginUse)>, BTreeMap<String, Vec<String>>);

/// The runtimes of a run. Those with a login are created when a stack first needs them.
#[derive(Default)]
pub struct StackRuntimes {
    /// The runtimes that use the job's own identity.
    job: RuntimeRegistry,
    parts: Option<(Kubernetes, Arc<Terraform>)>,
    others: Mutex<BTreeMap<RuntimeKey, (RuntimeRegistry, Kubernetes)>>,
}

impl StackRuntimes {
    /// Creates the runtimes from an infrastructure.
    pub(super) fn new(infrastructure: Infrastructure) -> Self {
        let Infrastructure {
            kubernetes,
            terraform,
        } = infrastructure;
        let terraform = Arc::new(terraform);
        Self {
            job: RuntimeRegistry::new()
                .with(Arc::new(kubernetes.clone()))
                .with(Arc::clone(&terraform) as _),
            parts: Some((kubernetes, terraform)),
            others: Mutex::default(),
        }
    }

    /// Returns the runtimes and the clusters of a stack with these rules; `None` if nothing is queried. The plans and
    /// the apply of a stack use the same runtimes.
    pub(crate) async fn with_clusters(
        &self,
        login: Option<&Arc<StackLogin>>,
        rules: &EffectiveStack,
    ) -> (RuntimeRegistry, Option<Kubernetes>) {
        let Some((kubernetes, terraform)) = &self.parts else {
            return (self.job.clone(), None);
        };
        if login.is_none() && rules.provider_identities.is_empty() {
            return (self.job.clone(), Some(kubernetes.clone()));
        }
        let key = (
            login.map(|login| login.key.clone()),
            rules.provider_identities.clone(),
        );
        let mut others = self.others.lock().await;
        if let Some((registry, kubernetes)) = others.get(&key) {
            return (registry.clone(), Some(kubernetes.clone()));
        }
        let kubernetes = match login {
            Some(login) => kubernetes.under(Arc::clone(&login.identity)).await,
            None => kubernetes.clone(),
        };
        let login = login.map(|login| Arc::clone(login) as Arc<dyn ProviderLogin>);
        let terraform = terraform.under(login, &rules.provider_identities);
        let registry = RuntimeRegistry::new()
            .with(Arc::new(kubernetes.clone()))
            .with(Arc::new(terraform));
        others.insert(key, (registry.clone(), kubernetes.clone()));
        (registry, Some(kubernetes))
    }
}
