//! The options of the runtime: from `konverge.yaml` on the default branch and the environment, never from a
//! stack.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use super::{provider_login::ProviderLogin, state_encryption::StateEncryption};
use konverge_base::{checkout::Checkout, secrets::Secrets};
use konverge_engine::runtime::RunNotes;

/// Options of the Terraform runtime.
#[derive(Debug, Clone)]
pub struct TerraformOptions {
    /// The executable; `None` looks for `terraform`, then `tofu`, on the `PATH`.
    pub binary: Option<PathBuf>,
    /// The checkout, which no executable may come from.
    pub checkout: Checkout,
    /// The providers that may run. Others are refused before `init`.
    pub providers: Vec<AllowedProvider>,
    /// The names of provider settings that a Spec may choose besides those that are always allowed. Their
    /// value may not be an address.
    pub credential_settings: Vec<String>,
    /// The addresses that a Spec may set in a provider's configuration, by the provider's source.
    pub provider_addresses: BTreeMap<String, Vec<String>>,
    /// The identities and other values that a Spec may set in a provider's configuration, by the provider's source.
    pub provider_identities: BTreeMap<String, Vec<String>>,
    /// The login of the providers; `None` for the job's own identity.
    pub login: Option<Arc<dyn ProviderLogin>>,
    /// A folder with the layout of Terraform's filesystem mirror; if set, nothing is downloaded.
    pub mirror: Option<PathBuf>,
    /// The cache of downloaded and unpacked providers; shared by concurrent runs. `None`: no cache.
    pub plugin_cache: Option<PathBuf>,
    /// The folder in which working folders are created (mode 0700, deleted afterwards); `None` for the system's
    /// temporary folder.
    pub scratch: Option<PathBuf>,
    /// Encrypts the state; without it a stack with sensitive values is refused.
    pub key: Option<Arc<dyn StateEncryption>>,
    /// Receives notes about the whole run.
    pub notes: RunNotes,
    /// The secrets to mask in all output of the runtime.
    pub secrets: Secrets,
    /// Variables for Terraform's environment, besides those that [`konverge_base::secrets::is_passed`]
    /// allows.
    pub environment: Vec<(OsString, OsString)>,
    /// The number of resources that Terraform processes concurrently (its `-parallelism`).
    pub parallelism: usize,
    /// The number of concurrent Terraform processes.
    pub processes: usize,
    /// The deadline of each `init`, `plan` and `show`. An apply has none, because each resource has its own
    /// timeout.
    pub deadline: Duration,
    /// Maximum time for an interrupted apply to finish operations in flight before it is killed.
    pub grace: Duration,
}

impl TerraformOptions {
    /// Adds to the identities that a Spec may set.
    pub fn allow_identities(&mut self, identities: &BTreeMap<String, Vec<String>>) {
        for (source, values) in identities {
            let listed = self.provider_identities.entry(source.clone()).or_default();
            listed.extend(values.iter().cloned());
        }
    }

    /// Creates options without providers and key, with Terraform's default parallelism (10), four processes, half an
    /// hour per step and two minutes for an interrupted apply.
    pub fn new(secrets: Secrets) -> Self {
        Self {
            binary: None,
            checkout: Checkout::default(),
            providers: Vec::new(),
            credential_settings: Vec::new(),
            provider_addresses: BTreeMap::new(),
            provider_identities: BTreeMap::new(),
            login: None,
            mirror: None,
            plugin_cache: None,
            scratch: None,
            key: None,
            notes: RunNotes::default(),
            secrets,
            environment: Vec::new(),
            parallelism: 10,
            processes: 4,
            deadline: Duration::from_secs(1800),
            grace: Duration::from_secs(120),
        }
    }
}

/// A provider that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedProvider {
    /// The source, `[host/]namespace/name`; the default host is `registry.terraform.io`.
    pub source: String,
    /// The exact version.
    pub version: String,
    /// The hashes of the package as in a lock file (`h1:…`, `zh:…`); the package must have one of them. If
    /// empty, the hash of the first apply is kept in the state and required from then on.
    pub hashes: Vec<String>,
}
