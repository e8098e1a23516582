//! `konverge doctor`.

use super::Context;
use crate::{
    error::Failure,
    ops::doctor::{self, Verdict},
    report::escape::{json, log},
};

/// Arguments of `konverge doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the result is printed
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// One JSON document
    Json,
}

/// Runs the command: 0 if nothing that is needed is missing, else 1.
///
/// # Errors
/// None.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let findings = doctor::run(&context.run()).await;
    let missing = findings.iter().any(|finding| finding.verdict == Verdict::Missing);
    if args.output == Output::Json {
        let document = serde_json::json!({"version": 1, "findings": findings});
        context.print(&(json(&format!("{document:#}")) + "\n"));
        return Ok(u8::from(missing));
    }
    for finding in &findings {
        let (word, colour) = match finding.verdict {
            Verdict::Ok => ("ok     ", "\x1b[32m"),
            Verdict::Missing => ("MISSING", "\x1b[1;31m"),
            Verdict::Unused => ("unused ", "\x1b[2m"),
        };
        let (colour, off) = if context.colour() {
            (colour, "\x1b[0m")
        } else {
            ("", "")
        };
        let mut text = format!("{colour}{word}{off}  {}: {}\n", finding.what, log(&finding.says));
        for fix in &finding.fix {
            text.push_str(&format!("           {}\n", log(fix)));
        }
        context.print(&text);
    }
    Ok(u8::from(missing))
}
