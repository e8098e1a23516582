//! [`PackageFetcher`]: the settings and the shared results of fetching packages.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::{bounds::Bounds, resolved_package::ResolvedPackage, trust::PackageTrust};
use crate::{SandboxMode, Toolchain};
use konverge_base::checkout::Checkout;

/// The folders whose checksum the run has verified.
pub type VerifiedPackages = Arc<Mutex<HashSet<PathBuf>>>;

/// The packages that the run has looked up because no lock pins them, by their folders.
pub type UnlockedPackages = Arc<tokio::sync::Mutex<HashMap<PathBuf, ResolvedPackage>>>;

/// Fetches packages and caches them.
#[derive(Debug, Clone)]
pub struct PackageFetcher {
    /// The folder of fetched packages.
    pub folder: PathBuf,
    /// True to fetch nothing and to use only packages that were fetched before.
    pub offline: bool,
    /// The core, whose interpreter unpacks archives.
    pub core: Toolchain,
    /// The `konverge` binary, which runs that interpreter in a sandbox.
    pub executable: PathBuf,
    /// The mode of the sandbox: what happens if a layer is not available.
    pub sandbox: SandboxMode,
    /// The limits of one package.
    pub bounds: Bounds,
    /// The environment of this process: credentials, proxies, `KCL_REGISTRY`.
    pub environment: BTreeMap<String, String>,
    /// The folders whose checksum this run has verified.
    pub whole: VerifiedPackages,
    /// The packages that this run has looked up because no lock pins them.
    pub unlocked: UnlockedPackages,
    /// The trust in the code that requests the packages.
    pub asker: PackageTrust,
    /// The checkout, from which no program is run.
    pub checkout: Checkout,
}
