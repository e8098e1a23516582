//! What the runtime is given: from the protected branch's `konverge.yaml` and the environment, never from a stack.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use super::state_encryption::StateEncryption;
use crate::{checkout::Checkout, secrets::Secrets};

/// How Terraform is run.
#[derive(Debug, Clone)]
pub struct TerraformOptions {
    /// The executable; `None` looks for `terraform`, then `tofu`, on the `PATH`.
    pub binary: Option<PathBuf>,
    /// Whence no executable is taken.
    pub checkout: Checkout,
    /// The providers that may run; all others are refused before `init`.
    pub providers: Vec<AllowedProvider>,
    /// Settings of providers that a Spec may use although they name commands or files of credentials.
    pub credential_settings: Vec<String>,
    /// A folder laid out as Terraform's filesystem mirror; with it nothing is downloaded.
    pub mirror: Option<PathBuf>,
    /// Where downloaded and unpacked providers are kept; shared by runs side by side. `None` keeps none.
    pub plugin_cache: Option<PathBuf>,
    /// Where work folders are made (mode 0700, removed afterwards); `None` is the system's folder for temporary files.
    pub scratch: Option<PathBuf>,
    /// Encrypts the state; without it a stack with sensitive values is refused.
    pub key: Option<Arc<dyn StateEncryption>>,
    /// What is masked in everything that leaves the runtime.
    pub secrets: Secrets,
    /// Set in Terraform's environment, besides what [`crate::secrets::is_passed`] lets through.
    pub environment: Vec<(OsString, OsString)>,
    /// How many resources Terraform works on at once (its `-parallelism`).
    pub parallelism: usize,
    /// How many Terraform processes run side by side.
    pub processes: usize,
    /// The longest that `init`, `plan` and `show` may take each. An apply has no limit of ours: resources have their own.
    pub deadline: Duration,
    /// How long an interrupted apply may take to finish what is in flight before it is killed.
    pub grace: Duration,
}

impl TerraformOptions {
    /// No provider, no key, Terraform's own parallelism (10), four processes, half an hour a step and two minutes' grace.
    pub fn new(secrets: Secrets) -> Self {
        Self {
            binary: None,
            checkout: Checkout::default(),
            providers: Vec::new(),
            credential_settings: Vec::new(),
            mirror: None,
            plugin_cache: None,
            scratch: None,
            key: None,
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
    /// `[host/]namespace/name`; the host is `registry.terraform.io` if left out.
    pub source: String,
    /// The exact version.
    pub version: String,
    /// Hashes in the lock file's form (`h1:…`, `zh:…`), one of which the package must have. If empty, the hash of the
    /// first apply is kept in the state and holds from then on.
    pub hashes: Vec<String>,
}
