//! `konverge __worker`, an internal command: applies the sandbox to itself and becomes the interpreter that
//! hosts the KCL core.

use std::process::ExitCode;

use crate::commands::toolchains;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sandbox settings, as JSON
    sandbox: String,
}

/// Runs the command. On success the process becomes another program, and this never returns.
pub(super) fn run(args: &Args) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    let error = toolchains::become_worker(&args.sandbox, &mut stderr);
    // The worker pool reads this line from stderr and reports it.
    let _ = std::io::Write::write_all(&mut stderr, format!("error: {error}\n").as_bytes());
    ExitCode::FAILURE
}
