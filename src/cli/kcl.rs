//! `konverge kcl`: the KCL cores on this machine, and the locks of packages.

use std::path::PathBuf;

use clap::Subcommand;

use super::{CliContext, completers, kcl_lock};
use crate::commands::toolchains::{self, InstallStep};
use konverge_base::error::UserError;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge kcl install              the core that this repository needs
  konverge kcl install 0.11.2       another one, for `kcl.version`
  konverge kcl list                 the versions that can be installed
  konverge kcl lock storefront/dev  pin the packages of a stack")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Download a version of the official core, verify its pinned hash and install it
    Install {
        /// The version; default: the one that this repository needs (`kcl.version` in konverge.yaml), or else the
        /// recommended one
        #[arg(add = completers::cores())]
        version: Option<String>,
        /// The Python interpreter that runs the core (default: the first suitable one on the PATH)
        #[arg(long, value_name = "PYTHON")]
        interpreter: Option<PathBuf>,
        /// The package index (default: PIP_INDEX_URL, or else PyPI)
        #[arg(long, value_name = "URL")]
        index: Option<String>,
    },
    /// List the versions that can be installed, and mark the installed ones
    List,
    /// Show where a version is installed
    Which {
        /// The version; default: as for `install`
        #[arg(add = completers::cores())]
        version: Option<String>,
    },
    /// Pin the packages of stacks by commit and checksum in their kcl.mod.lock
    Lock(kcl_lock::Args),
}

/// Runs the command.
///
/// # Errors
/// The version is unknown, cannot be downloaded, or does not have its pinned hash; a package cannot be locked.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    match &args.action {
        Action::Install {
            version,
            interpreter,
            index,
        } => {
            let version = &toolchains::chosen(&run, version.as_deref())?;
            let mut quarter = 0;
            let mut progress = |step: InstallStep| match step {
                InstallStep::Present => context.note(&format!("KCL {version} is already installed")),
                InstallStep::Fetching(file) => context.note(&format!("fetching {file}")),
                InstallStep::Received(bytes, Some(total)) if total > 0 && bytes * 4 / total > quarter => {
                    quarter = bytes * 4 / total;
                    context.note(&format!("  {} of {} KiB", bytes >> 10, total >> 10));
                }
                InstallStep::Received(..) => {}
                InstallStep::Verified => context.note("checksum OK; trying it"),
            };
            let core =
                toolchains::install(&run, version, interpreter.clone(), index.clone(), &mut progress).await?;
            context.note(&format!("KCL {version} is ready: {}", core.extension.display()));
        }
        Action::List => {
            // List the versions even if konverge.yaml is invalid.
            let needed = toolchains::needed(&run).ok().flatten();
            for known in toolchains::list(&run).await {
                let version = known.version;
                let mut remarks = Vec::new();
                if known.installed {
                    remarks.push("installed");
                }
                if version == toolchains::DEFAULT_VERSION {
                    remarks.push("default");
                }
                if needed.as_deref() == Some(version) {
                    remarks.push("needed here");
                }
                let line = format!("{version}  {}", remarks.join(", "));
                context.print(&format!("{}\n", line.trim_end()));
            }
        }
        Action::Lock(args) => return kcl_lock::run(args, context).await,
        Action::Which { version } => {
            let version = toolchains::chosen(&run, version.as_deref())?;
            let core = toolchains::find(&run, &version).await?;
            context.print(&format!(
                "{}\n  Python interpreter: {}\n",
                core.extension.display(),
                core.interpreter.display()
            ));
        }
    }
    Ok(0)
}
