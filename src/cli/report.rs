//! `konverge report`: joins what the jobs of a matrix printed.

use std::path::PathBuf;

use super::{
    Context,
    preview::{Output, rendered},
};
use crate::{
    error::Failure,
    ops::gather,
    report::{Merging, terminal::Style},
};

/// Arguments of `konverge report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder with what each job's `preview --output json` printed, at any depth, as `*.json`
    #[arg(long, value_name = "DIR", required = true)]
    gather: PathBuf,
    /// The shares that the jobs had (`affected --shard-file`): what no job reported is an error
    #[arg(long, value_name = "FILE")]
    shard_file: Option<PathBuf>,
    /// How the whole is printed
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Exit with 2 if anything would change
    #[arg(long)]
    exit_code: bool,
}

/// Runs the command.
///
/// # Errors
/// A file is no plan, two jobs report one stack, or a stack of the shares is missing. A stack that a job could not plan
/// is shown, and gives exit code 1.
pub fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let gathered = gather::run(&args.gather, args.shard_file.as_deref(), &context.secrets)?;
    let style = Style {
        color: context.colour(),
    };
    let plan = &gathered.plan;
    context.print(&rendered(
        plan,
        &gathered.affected,
        // How many others there are is known where the shares were made.
        0,
        Merging::NoStore,
        args.output,
        style,
    ));
    let failed = plan.stacks.iter().any(|stack| stack.error.is_some());
    let changed = plan.stacks.iter().any(|stack| stack.summary.changed() > 0);
    Ok(match (failed, changed && args.exit_code) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    })
}
