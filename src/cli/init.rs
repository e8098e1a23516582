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
pub fn run(_: &Args, context: &Context) -> Result<u8, Failure> {
    for (path, written) in init::run(&context.repo_dir())? {
        let word = match written {
            Written::Created => "created",
            Written::Kept => "kept   ",
        };
        context.print(&format!("{word}  {path}\n"));
    }
    context.note(
        "next: set `state.url` and `clusters` in konverge.yaml, commit both files, and open a pull request",
    );
    Ok(0)
}
