//! The KCL cores on this machine.

use std::path::PathBuf;

use super::Run;
use crate::{
    error::Failure,
    kcl::{self, Core, InstallOptions},
};

pub use crate::kcl::{DEFAULT_VERSION, InstallStep};

/// A version that can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The version.
    pub version: &'static str,
    /// Whether it is here.
    pub installed: bool,
}

/// A core that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its native library.
    pub library: PathBuf,
    /// The interpreter that hosts it.
    pub interpreter: PathBuf,
}

impl From<Core> for Found {
    fn from(core: Core) -> Self {
        Self {
            library: core.extension,
            interpreter: core.interpreter,
        }
    }
}

/// Fetches a version, checks it against its pinned hash and puts it in place.
///
/// # Errors
/// The version is unknown, can not be fetched, or is not what was pinned.
pub async fn install(
    run: &Run,
    version: &str,
    interpreter: Option<PathBuf>,
    index: Option<String>,
    progress: &mut (dyn FnMut(InstallStep) + Send),
) -> Result<Found, Failure> {
    let options = InstallOptions {
        interpreter,
        index,
        data: None,
        checkout: run.checkout(),
    };
    Ok(kcl::install(version, &options, progress).await?.into())
}

/// Every version, newest first.
pub async fn list(run: &Run) -> Vec<Known> {
    let checkout = run.checkout();
    let mut all = Vec::new();
    for version in kcl::versions() {
        let installed = Core::find_earlier(version, &checkout).await.is_ok();
        all.push(Known { version, installed });
    }
    all
}

/// Where a version is.
///
/// # Errors
/// It is not here.
pub async fn find(run: &Run, version: &str) -> Result<Found, Failure> {
    Ok(Core::find_earlier(version, &run.checkout()).await?.into())
}

/// Becomes a walled-in worker; `walls` is what the pool wrote. Returns only if that fails, with the reason.
pub fn become_worker(walls: &str, warn: &mut dyn std::io::Write) -> String {
    match serde_json::from_str::<kcl::sandbox::Walls>(walls) {
        Ok(walls) => walls.enter(warn).to_string(),
        Err(error) => format!("not a description of walls: {error}"),
    }
}
