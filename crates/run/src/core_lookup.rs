//! The KCL core that a configuration needs: found on this machine, or installed where `kcl.install` allows it.

use crate::RunContext;
use konverge_base::error::UserError;
use konverge_config::{Config, CoreInstall};
use konverge_kcl::{InstallOptions, KclError, Toolchain};

/// Finds the core of `kcl.version`. `earlier` if the configuration is of an earlier revision, which may need another
/// version than the one that `KONVERGE_KCL` names.
///
/// # Errors
/// It is missing and must not be installed (the hint has the command), or it cannot be installed.
pub(crate) async fn find(run: &RunContext, config: &Config, earlier: bool) -> Result<Toolchain, UserError> {
    let (version, checkout) = (config.kcl.core(), run.checkout());
    let found = if earlier {
        Toolchain::find_earlier(version, &checkout).await
    } else {
        Toolchain::find(version, &checkout).await
    };
    match found {
        Err(KclError::NotInstalled(_)) if may_install(run, config) => {
            run.notes.note(&format!(
                "installing the KCL core {version} (`kcl.install: auto`)"
            ));
            let options = InstallOptions {
                checkout,
                ..InstallOptions::default()
            };
            Ok(konverge_kcl::install(version, &options, &mut |_| {}).await?)
        }
        found => Ok(found?),
    }
}

/// In CI and offline nothing is installed, whatever the file says: a job installs its core before it starts.
fn may_install(run: &RunContext, config: &Config) -> bool {
    config.kcl.install == CoreInstall::Auto && !run.in_ci() && run.var("KONVERGE_OFFLINE").is_none()
}
