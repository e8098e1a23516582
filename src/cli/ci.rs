//! `konverge ci`: what the event of a GitHub Actions run asks for.

use super::{Context, which::LiveArg};
use crate::{
    error::Failure,
    ops::ci::{self, CiOptions},
};

/// Arguments of `konverge ci`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whether the real infrastructure is asked; default: required, and never for a fork's pull request
    #[arg(long, value_name = "WHEN", value_enum, env = "KONVERGE_LIVE")]
    live: Option<LiveArg>,
}

/// Runs the command.
///
/// # Errors
/// Not in GitHub Actions, an event that is refused, or a repository or configuration that can not be used.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let options = CiOptions {
        live: args.live.map(Into::into),
    };
    let ended = ci::run(&context.run(), &options).await?;
    context.print(&ended.text);
    Ok(ended.code)
}
