//! The KCL core that a configuration needs: found on this machine, or installed where `kcl.install` allows it.

use crate::RunContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};
use konverge_config::{Config, CoreInstall, FILE_NAME};
use konverge_kcl::{InstallOptions, KclError, Toolchain};

/// Finds the KCL core for a configuration. `past` is true for an earlier revision, which may need another version than
/// the core that `KONVERGE_KCL` names.
///
/// # Errors
/// The core is missing and must not be installed (the hint has the command), or its installation fails.
pub(crate) async fn find(
    run: &RunContext,
    version: &str,
    install: CoreInstall,
    past: bool,
) -> Result<Toolchain, KclError> {
    let checkout = run.checkout();
    let found = if past {
        Toolchain::find_earlier(version, &checkout).await
    } else {
        Toolchain::find(version, &checkout).await
    };
    match found {
        Err(KclError::NotInstalled(_)) if may_install(run, install) => {
            run.notes.info(&format!(
                "installing the KCL core {version} (`kcl.install: auto`)"
            ));
            let options = InstallOptions {
                checkout,
                ..InstallOptions::default()
            };
            konverge_kcl::install(version, &options, &mut |_| {}).await
        }
        found => found,
    }
}

/// Requires that a pull request uses the core of the default branch, or a core that is pinned by hash.
///
/// # Errors
/// The pull request uses another core.
pub fn require_pinned(proposed: &Config, protected: &Config) -> Result<(), UserError> {
    let version = proposed.kcl.core();
    if version == protected.kcl.core() || konverge_kcl::versions().contains(&version) {
        return Ok(());
    }
    let what = format!(
        "kcl.version: a pull request cannot choose the KCL core `{}`, which is not pinned",
        version.escape_debug()
    );
    Err(UserError::new(ErrorKind::Config, what)
        .at(FILE_NAME, None, None)
        .hint("write a version that `konverge kcl list` shows: these are pinned by hash"))
}

/// Returns true if a core may be installed. In CI and offline it never is, whatever `kcl.install` says: a job installs
/// its core before Konverge starts.
fn may_install(run: &RunContext, install: CoreInstall) -> bool {
    install == CoreInstall::Auto && !run.in_ci() && run.var(variables::KONVERGE_OFFLINE).is_none()
}
