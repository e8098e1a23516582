//! `konverge kcl`: the KCL cores on this machine.

use std::path::PathBuf;

use clap::Subcommand;

use super::Context;
use crate::{
    error::Failure,
    kcl::{self, Core, InstallOptions, InstallStep},
};

/// Arguments of `konverge kcl`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch a version of the official core, check it against its pinned hash and put it in place
    Install {
        /// The version
        #[arg(default_value = kcl::DEFAULT_VERSION)]
        version: String,
        /// The Python interpreter that is to host it (default: the first on the PATH that fits)
        #[arg(long, value_name = "PYTHON")]
        interpreter: Option<PathBuf>,
        /// The package index (default: PIP_INDEX_URL, else PyPI)
        #[arg(long, value_name = "URL")]
        index: Option<String>,
    },
    /// List the versions that can be installed, and mark those that are
    List,
    /// Say where a version is found
    Which {
        /// The version
        #[arg(default_value = kcl::DEFAULT_VERSION)]
        version: String,
    },
}

/// Runs the command.
///
/// # Errors
/// The version is unknown, can not be fetched, or is not what was pinned.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.action {
        Action::Install {
            version,
            interpreter,
            index,
        } => {
            let options = InstallOptions {
                interpreter: interpreter.clone(),
                index: index.clone(),
                data: None,
            };
            let mut quarter = 0;
            let mut progress = |step: InstallStep| match step {
                InstallStep::Present => context.note(&format!("KCL {version} is already installed")),
                InstallStep::Fetching(file) => context.note(&format!("fetching {file}")),
                InstallStep::Received(bytes, Some(total)) if total > 0 && bytes * 4 / total > quarter => {
                    quarter = bytes * 4 / total;
                    context.note(&format!("  {} of {} KiB", bytes >> 10, total >> 10));
                }
                InstallStep::Received(..) => {}
                InstallStep::Verified => context.note("its SHA-256 is the pinned one; trying it"),
            };
            let core = kcl::install(version, &options, &mut progress).await?;
            context.note(&format!("KCL {version} is ready: {}", core.extension.display()));
        }
        Action::List => {
            for version in kcl::versions() {
                let found = Core::find(version).await.is_ok();
                let default = version == kcl::DEFAULT_VERSION;
                let remark = match (found, default) {
                    (true, true) => "  installed, default",
                    (true, false) => "  installed",
                    (false, true) => "  default",
                    (false, false) => "",
                };
                context.print(&format!("{version}{remark}\n"));
            }
        }
        Action::Which { version } => {
            let core = Core::find(version).await?;
            context.print(&format!(
                "{}\n  hosted by {}\n",
                core.extension.display(),
                core.interpreter.display()
            ));
        }
    }
    Ok(0)
}
