//! `konverge cache`: the caches of this machine.

use clap::Subcommand;

use super::CliContext;
use konverge_base::error::UserError;
use konverge_config::Span;
use konverge_run::caches::{self, CacheContents};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge cache show
  konverge cache prune --older-than 30d")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show where the caches are and how large
    Show,
    /// Delete what was not used for a while; safe, the next run is slower
    Prune {
        /// The minimum time since the last use, such as `30d`
        #[arg(long, value_name = "AGE", default_value = "30d", conflicts_with = "all")]
        older_than: Span,
        /// Delete everything
        #[arg(long)]
        all: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// There is no cache folder, or it cannot be read or written.
pub(super) fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    match &args.action {
        Action::Show => {
            for kept in caches::show(&run)? {
                context.print(&format!(
                    "{}: {}\n  {}\n",
                    kept.what,
                    amount(&kept),
                    kept.folder.display()
                ));
            }
        }
        Action::Prune { older_than, all } => {
            let age = (!all).then_some(older_than.duration());
            for kept in caches::prune(&run, age)? {
                context.print(&format!("{}: deleted {}\n", kept.what, amount(&kept)));
            }
        }
    }
    Ok(0)
}

fn amount(kept: &CacheContents) -> String {
    let entries = if kept.entries == 1 { "entry" } else { "entries" };
    format!(
        "{} {entries}, {:.1} MiB",
        kept.entries,
        kept.bytes as f64 / f64::from(1 << 20)
    )
}
