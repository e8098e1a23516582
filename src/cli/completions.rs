//! `konverge completions SHELL`.

use clap::Command;
use clap_complete::Shell;

use super::CliContext;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args, mut command: Command, context: &CliContext) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "konverge", &mut script);
    context.print(&String::from_utf8_lossy(&script));
    0
}
