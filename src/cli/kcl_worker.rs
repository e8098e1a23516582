//! `konverge __worker`: not for people. Walls itself in and becomes the interpreter that hosts the KCL core.

use std::process::ExitCode;

use crate::ops::toolchains;

/// Arguments of `konverge __worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The walls, as JSON
    walls: String,
}

/// Runs the command; on success the process is another program and this never returns.
pub fn run(args: &Args) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    let error = toolchains::become_worker(&args.walls, &mut stderr);
    // The pool reads this and says it in its own words.
    let _ = std::io::Write::write_all(&mut stderr, format!("error: {error}\n").as_bytes());
    ExitCode::FAILURE
}
