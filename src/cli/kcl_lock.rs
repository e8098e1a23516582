//! `konverge kcl lock`: pins the packages of stacks.

use super::{CliContext, completers};
use crate::commands::package_lock_update;
use konverge_base::error::UserError;
use konverge_report::escape::log;
use konverge_run::{Selection, StackSelector};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge kcl lock                            the packages of every stack
  konverge kcl lock storefront/dev             those of one stack
  konverge kcl lock --update k8s               look `k8s` up again, also where it is locked")]
pub(super) struct Args {
    /// Stacks, by identity, folder, project or glob (`storefront/*`); default: every one
    #[arg(value_name = "STACK", add = completers::stacks())]
    names: Vec<StackSelector>,
    /// A package that is looked up again although it is locked; may be repeated
    #[arg(long, value_name = "PACKAGE")]
    update: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The last package that could not be locked, after the others.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let selection = if args.names.is_empty() {
        Selection::All
    } else {
        Selection::Named(args.names.clone())
    };
    let (reports, failures) = package_lock_update::run(&context.run(), selection, &args.update).await?;
    if reports.is_empty() && failures.is_empty() {
        context.note("no stack has a package from outside the repository");
    }
    for report in &reports {
        let count = report.changed.len();
        context.print(&log(&match count {
            0 => format!("{}: unchanged, {} locked", report.file, report.unchanged),
            _ => format!(
                "{}: {count} newly locked, {} unchanged",
                report.file, report.unchanged
            ),
        }));
        context.print("\n");
        for (name, found) in &report.changed {
            context.print(&format!("  {} {}\n", log(name), log(found)));
        }
    }
    if let Some(hint) = reports.iter().find_map(|report| report.hint.as_ref()) {
        context.note(&format!("hint: {hint}"));
    }
    context.end(failures)
}
