//! `konverge version`: which Konverge this is.

use super::CliContext;
use konverge_base::error::UserError;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge version")]
pub struct Args {}

/// Runs the command: prints what `konverge --version` prints.
///
/// # Errors
/// None.
pub(super) fn run(_args: &Args, context: &CliContext) -> Result<u8, UserError> {
    context.print(concat!("konverge ", env!("CARGO_PKG_VERSION"), "\n"));
    Ok(0)
}
