//! `konverge init`.

use super::Context;
use crate::{
    error::Failure,
    ops::init::{self, Written},
};

/// Arguments of `konverge init`: none of its own.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
///
/// # Errors
/// Not in a repository, or it can not be written to.
pub async fn run(_: &Args, context: &Context) -> Result<u8, Failure> {
    let report = init::run(&context.run()).await?;
    for (path, written) in &report.files {
        let word = match written {
            Written::Created => "created",
            Written::Kept => "kept   ",
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
