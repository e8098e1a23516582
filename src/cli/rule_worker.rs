//! `konverge __rules`, an internal command: applies the sandbox to itself, then parses and evaluates rules for the
//! process that started it.

use std::process::ExitCode;

use konverge_run::rule_evaluator;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The limits, as JSON
    limits: String,
}

/// Runs the command until its input ends.
pub(super) fn run(args: &Args) -> ExitCode {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match rule_evaluator::serve(&args.limits, &mut input, &mut output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The process that started this worker reads the line from stderr and reports it.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("error: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}
