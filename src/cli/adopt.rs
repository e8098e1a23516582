//! `konverge adopt`: what the first apply would do to stacks that run already.

use super::{
    CliContext,
    common_args::{ClusterArg, TextOrJson},
};
use crate::commands::adopt;
use konverge_base::{
    error::UserError,
    model::{
        plan::Plan,
        takeover::{Takeover, TakeoverReport},
    },
};
use konverge_report as report;
use konverge_run::adoption::FILE_NAME;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge adopt                        what would be taken over unchanged, changed or made
  konverge adopt --write                name the unchanged stacks in konverge.adopt.yaml
  konverge adopt --output json")]
pub struct Args {
    /// Write konverge.adopt.yaml with the stacks that would be taken over unchanged. The pull request that brings it
    /// takes them over
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    cluster: ClusterArg,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// Runs the command.
///
/// # Errors
/// The stacks cannot be opened, or the file cannot be written. A stack that cannot be planned is shown, and gives exit
/// code 1.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let plan = adopt::plan(&run, args.cluster.given()).await?;
    let found = TakeoverReport::new(&plan);
    match args.output {
        TextOrJson::Json => context.print(&report::json::document(&found)),
        TextOrJson::Text => {
            context.print(&report::takeover::text(&found, context.style()));
            let differing = differing(&plan);
            if !differing.stacks.is_empty() {
                context.print(&format!(
                    "\n{}",
                    report::terminal::plan(&differing, context.style())
                ));
            }
        }
    }
    if found.stacks_that_are(Takeover::New).next().is_some() {
        context.note(
            "hint: run `konverge preview STACK` to see what would be created for a stack that does not run yet",
        );
    }
    if args.write {
        let count = adopt::write(&run, &found)?;
        context.note(&format!(
            "wrote {FILE_NAME} with {}",
            report::plural(count, "stack")
        ));
        context.note(&format!(
            "hint: open a pull request with {FILE_NAME}: its preview shows the stacks again, and its merge takes them over"
        ));
    } else if found.stacks_that_are(Takeover::Unchanged).next().is_some() {
        context.note(&format!(
            "hint: `konverge adopt --write` names the unchanged stacks in {FILE_NAME}, for one pull request"
        ));
    }
    Ok(u8::from(found.stacks_that_are(Takeover::Failed).next().is_some()))
}

/// Returns the plans of the stacks that would change or could not be planned. A stack of which nothing runs yet is left
/// out: there is nothing to compare.
fn differing(plan: &Plan) -> Plan {
    let stacks = plan.stacks.iter();
    let stacks =
        stacks.filter(|stack| matches!(Takeover::judge(stack), Takeover::Changed | Takeover::Failed));
    Plan {
        version: plan.version,
        stacks: stacks.cloned().collect(),
    }
}
