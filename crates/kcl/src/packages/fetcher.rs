//! [`PackageFetcher`]: settings and results that all steps of fetching packages share.

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

/// Packages that a run has found for sources that nothing pins, by the folder that they would have.
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
    /// Behaviour if a sandbox layer is not available.
    pub sandbox: SandboxMode,
    /// The limits of one package.
    pub bounds: Bounds,
    /// Our environment: credentials, proxies, `KCL_REGISTRY`.
    pub environment: BTreeMap<String, String>,
    /// The folders whose content this run has verified.
    pub whole: VerifiedPackages,
    /// Packages that this run has found for sources that nothing pins.
    pub unlocked: UnlockedPackages,
    /// Trust in the code that requests packages.
    pub asker: PackageTrust,
    /// The checkout; no program is run from it.
    pub checkout: Checkout,
}
