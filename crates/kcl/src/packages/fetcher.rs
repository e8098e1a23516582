//! [`PackageFetcher`]: what every step of fetching a package is given.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::{bounds::Bounds, resolved_package::ResolvedPackage, trust::PackageTrust};
use crate::{SandboxMode, Toolchain};
use konverge_base::checkout::Checkout;

/// The folders whose content a run has verified.
pub type VerifiedPackages = Arc<Mutex<HashSet<PathBuf>>>;

/// What a run has found for sources that nothing pins, by the folder that they would have.
pub type UnlockedPackages = Arc<tokio::sync::Mutex<HashMap<PathBuf, ResolvedPackage>>>;

/// Fetches packages and caches them.
#[derive(Debug, Clone)]
pub struct PackageFetcher {
    /// The folder of fetched packages.
    pub folder: PathBuf,
    /// Fetch nothing: use only what was fetched before.
    pub offline: bool,
    /// The core, whose interpreter unpacks archives.
    pub core: Toolchain,
    /// The `konverge` binary, which sandboxes that interpreter.
    pub executable: PathBuf,
    /// What to do if a sandbox layer is not available.
    pub sandbox: SandboxMode,
    /// The limits of one package.
    pub bounds: Bounds,
    /// Our environment: credentials, proxies, `KCL_REGISTRY`.
    pub environment: BTreeMap<String, String>,
    /// The folders whose content this run has verified.
    pub whole: VerifiedPackages,
    /// What this run has found for sources that nothing pins, by the folder that they would have.
    pub unlocked: UnlockedPackages,
    /// How far the requesting code is trusted.
    pub asker: PackageTrust,
    /// The checkout; no program is run from it.
    pub checkout: Checkout,
}
