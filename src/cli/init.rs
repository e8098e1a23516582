//! `konverge init`: sets up a repository.

use super::CliContext;
use crate::{
    error::UserError,
    ops::init::{self, WrittenFile},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge init                     in a clone of the repository
  konverge --repo ~/monorepo init")]
pub struct Args {}

/// Runs the command.
///
/// # Errors
/// Not in a repository, or it cannot be written.
pub async fn run(_: &Args, context: &CliContext) -> Result<u8, UserError> {
    let report = init::run(&context.run()).await?;
    for (path, written) in &report.files {
        let word = match written {
            WrittenFile::Created => "created",
            WrittenFile::Kept => "kept   ",
        };
        context.print(&format!("{word}  {path}\n"));
    }
    for sentence in &report.found {
        context.note(&format!("found: {sentence}"));
    }
    for (command, told) in &report.tried {
        match told {
            Ok(told) => context.note(&format!("tried: `{command}`: {told}")),
            Err(failure) => {
                context.note(&format!("tried: `{command}`: {}", failure.message));
                for hint in &failure.hints {
                    context.note(&format!("  hint: {hint}"));
                }
            }
        }
    }
    for hint in &report.hints {
        context.note(&format!("hint: {hint}"));
    }
    Ok(0)
}
