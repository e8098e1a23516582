//! The KCL cores on this machine.

use std::path::PathBuf;

use konverge_base::error::UserError;
use konverge_kcl::{self as kcl, InstallOptions, Toolchain};
use konverge_run::RunContext;
use konverge_sandbox::SandboxLayers;

pub use konverge_kcl::{DEFAULT_VERSION, InstallStep};

/// A version that can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownToolchain {
    /// Version of the core.
    pub version: &'static str,
    /// True if it stands in the cache.
    pub installed: bool,
}

/// An installed core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledToolchain {
    /// Its native library.
    pub library: PathBuf,
    /// The interpreter that hosts it.
    pub interpreter: PathBuf,
}

impl From<Toolchain> for InstalledToolchain {
    fn from(core: Toolchain) -> Self {
        Self {
            library: core.extension,
            interpreter: core.interpreter,
        }
    }
}

/// Downloads a version, verifies its pinned hash and installs it.
///
/// # Errors
/// The version is unknown, cannot be downloaded, or does not have its pinned hash.
pub async fn install(
    run: &RunContext,
    version: &str,
    interpreter: Option<PathBuf>,
    index: Option<String>,
    progress: &mut (dyn FnMut(InstallStep) + Send),
) -> Result<InstalledToolchain, UserError> {
    let options = InstallOptions {
        interpreter,
        index,
        data: None,
        checkout: run.checkout(),
    };
    Ok(kcl::install(version, &options, progress).await?.into())
}

/// Every version, newest first.
pub async fn list(run: &RunContext) -> Vec<KnownToolchain> {
    let checkout = run.checkout();
    let mut all = Vec::new();
    for version in kcl::versions() {
        let installed = Toolchain::find_earlier(version, &checkout).await.is_ok();
        all.push(KnownToolchain { version, installed });
    }
    all
}

/// Finds an installed version.
///
/// # Errors
/// It is not installed.
pub async fn find(run: &RunContext, version: &str) -> Result<InstalledToolchain, UserError> {
    Ok(Toolchain::find_earlier(version, &run.checkout()).await?.into())
}

/// Becomes a sandboxed worker; `sandbox` is the pool's JSON with the sandbox settings. Returns only on failure,
/// with the reason.
pub fn become_worker(sandbox: &str, warn: &mut dyn std::io::Write) -> String {
    match serde_json::from_str::<SandboxLayers>(sandbox) {
        Ok(layers) => layers.enter(warn).to_string(),
        Err(error) => format!("not a description of a sandbox: {error}"),
    }
}
