//! `konverge ci`: what the event of a GitHub Actions run asks for.

use clap::ValueEnum;

use super::{Context, which::LiveArg};
use crate::{
    error::{ErrorKind, Failure},
    ops::ci::{self, CiOptions},
};

/// Arguments of `konverge ci`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whether the real infrastructure is asked; default: KONVERGE_LIVE, else required, and never for a fork's pull
    /// request
    #[arg(long, value_name = "WHEN", value_enum)]
    live: Option<LiveArg>,
}

/// Runs the command.
///
/// # Errors
/// Not in GitHub Actions, an event that is refused, or a repository or configuration that can not be used.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let live = match (
        args.live,
        context.env.get("KONVERGE_LIVE").filter(|text| !text.is_empty()),
    ) {
        (None, Some(text)) => Some(LiveArg::from_str(text, false).map_err(|_| {
            Failure::new(
                ErrorKind::Usage,
                format!("KONVERGE_LIVE is `{}`", text.escape_debug()),
            )
            .hint("it is `auto`, `never` or `required`")
        })?),
        (given, _) => given,
    };
    let options = CiOptions {
        live: live.map(Into::into),
    };
    let ended = ci::run(&context.run(), &options).await?;
    context.print(&ended.text);
    Ok(ended.code)
}
