//! The KCL cores on this machine.

use std::path::PathBuf;

use konverge_base::error::UserError;
use konverge_config::{Config, FILE_NAME};
use konverge_kcl::{self as kcl, InstallOptions, Toolchain};
use konverge_run::{RunContext, repository_root};
use konverge_sandbox::SandboxLayers;

pub use konverge_kcl::{DEFAULT_VERSION, InstallStep};

/// A version that can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownToolchain {
    /// Version of the core.
    pub version: &'static str,
    /// True if the core is in the cache.
    pub installed: bool,
}

/// Returns the version that `kcl.version` in konverge.yaml of the checkout names; `None` without the file or the key.
///
/// # Errors
/// The file is invalid.
pub fn needed(run: &RunContext) -> Result<Option<String>, UserError> {
    let folder = repository_root(&run.dir).unwrap_or_else(|_| run.dir.clone());
    let Ok(text) = std::fs::read_to_string(folder.join(FILE_NAME)) else {
        return Ok(None);
    };
    Ok(Config::parse(&text)?.kcl.version)
}

/// Returns the named version, or else the one that the checkout needs, or else the recommended one.
///
/// # Errors
/// The same as for [`needed`].
pub fn chosen(run: &RunContext, named: Option<&str>) -> Result<String, UserError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let Some(version) = needed(run)? else {
        return Ok(DEFAULT_VERSION.to_owned());
    };
    run.notes.info(&format!("konverge.yaml needs KCL {version}"));
    Ok(version)
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
) -> Result<Toolchain, UserError> {
    let options = InstallOptions {
        interpreter,
        index,
        data: None,
        checkout: run.checkout(),
    };
    Ok(kcl::install(version, &options, progress).await?)
}

/// Returns every version, newest first.
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
/// The version is not installed.
pub async fn find(run: &RunContext, version: &str) -> Result<Toolchain, UserError> {
    Ok(Toolchain::find_earlier(version, &run.checkout()).await?)
}

/// Turns this process into a sandboxed worker; `sandbox` is the pool's JSON with the sandbox settings. Returns only on
/// failure, with the reason.
pub fn become_worker(sandbox: &str, warn: &mut dyn std::io::Write) -> String {
    match serde_json::from_str::<SandboxLayers>(sandbox) {
        Ok(layers) => layers.enter(warn).to_string(),
        Err(error) => format!("not a description of a sandbox: {error}"),
    }
}
