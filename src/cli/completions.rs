//! `konverge completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, CliContext};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args, context: &CliContext) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "konverge", &mut script);
    context.print(&String::from_utf8_lossy(&script));
    0
}
