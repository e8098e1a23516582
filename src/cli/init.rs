//! `konverge init`: sets up a repository.

use super::CliContext;
use crate::ops::init::{self, CoreTrials, WrittenFile};
use konverge_base::error::UserError;
use konverge_report as report;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge init                     in a clone of the repository
  konverge --repo ~/monorepo init")]
pub struct Args {
    /// Try only the KCL cores that are installed: download none
    #[arg(long)]
    no_install: bool,
}

/// Errors that are shown of the core that fits best.
const SHOWN_ERRORS: usize = 3;

/// Lines of each of them.
const SHOWN_LINES: usize = 24;

/// Runs the command.
///
/// # Errors
/// Not in a repository, or it cannot be written.
pub async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let report = init::run(&context.run(), !args.no_install).await?;
    for (path, written) in &report.files {
        let word = match written {
            WrittenFile::Created => "created",
            WrittenFile::Kept => "kept   ",
        };
        context.print(&format!("{word}  {path}\n"));
    }
    for sentence in &report.found {
        context.note(&format!("found: {sentence}"));
    }
    for (command, told) in &report.tried {
        match told {
            Ok(told) => context.note(&format!("tried: `{command}`: {told}")),
            Err(failure) => {
                context.note(&format!("tried: `{command}`: {}", failure.message));
                for hint in &failure.hints {
                    context.note(&format!("  hint: {hint}"));
                }
            }
        }
    }
    show_cores(&report.cores, context);
    for hint in &report.hints {
        context.note(&format!("hint: {hint}"));
    }
    Ok(0)
}

/// What each core compiled, as a table.
fn show_cores(cores: &CoreTrials, context: &CliContext) {
    if !cores.rows.is_empty() {
        let which = match cores.stacks < cores.all_stacks {
            true => format!("{} of {} stacks", cores.stacks, cores.all_stacks),
            false => "every stack".to_owned(),
        };
        context.note(&format!("tried: {which} with the KCL core"));
    }
    for row in &cores.rows {
        let mut why: Vec<_> = row
            .reasons
            .iter()
            .map(|(reason, stacks)| format!("{reason} ({})", report::plural(*stacks, "stack")))
            .collect();
        if cores.rows.len() > 1 && cores.chosen.as_ref() == Some(&row.version) {
            why.push("the one to use".to_owned());
        }
        let counted = format!("{} of {} compile", row.compiled, cores.stacks);
        let line = format!("  {:<8}  {counted:<18}  {}", row.version, why.join("; "));
        context.note(line.trim_end());
    }
    if let Some((versions, why)) = &cores.untried {
        let some: Vec<_> = versions.iter().take(3).map(String::as_str).collect();
        let more = match versions.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        context.note(&format!("  not tried: {}{more}: {why}", some.join(", ")));
    }
    for failure in cores.failures.iter().take(SHOWN_ERRORS) {
        let text = failure.to_string();
        let lines: Vec<_> = text.lines().take(SHOWN_LINES).collect();
        context.note(&format!("error: {}", lines.join("\n")));
        for hint in &failure.hints {
            context.note(&format!("  hint: {hint}"));
        }
    }
    if cores.failures.len() > SHOWN_ERRORS {
        context.note("hint: `konverge build --all` shows the other errors");
    }
}
