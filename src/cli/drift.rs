//! `konverge drift`: what differs from what was applied last.

use super::{
    CliContext,
    common_args::{
        InfrastructureArgs, Stacks, TextOrJson, all_by_default, every_by_default, exit_code, live_by_default,
    },
};
use konverge_base::{error::UserError, model::note::Note};
use konverge_report as report;
use konverge_run::{KeyUse, OpenRequest, cluster_selection::Live, drift::DriftReport, session};

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("names", every_by_default),
    mut_arg("all", all_by_default),
    mut_arg("live", live_by_default),
    after_help = "Examples:
  konverge drift                        every stack
  konverge drift 'storefront/*'         the stacks of a project
  konverge drift --exit-code            exit with 2 if anything drifted"
)]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    infrastructure: InfrastructureArgs,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
    /// Exit with 2 if anything drifted
    #[arg(long)]
    exit_code: bool,
}

/// Runs the command. Without arguments every stack is checked.
///
/// # Errors
/// The stacks cannot be opened. A stack that cannot be checked is shown, and gives exit code 1.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let request = OpenRequest {
        shard: args.stacks.shard,
        selection: args.stacks.selection_or_all()?,
        live: Live::Required,
        given: args.infrastructure.given_cluster(),
        ..OpenRequest::default()
    };
    let session = session::open_named(&context.run(), &request, KeyUse::Look).await?;
    let checked = konverge_run::drift::run(&session.planning, &session.targets, None).await?;
    let plan = &checked.plan;
    match args.output {
        TextOrJson::Json => context.print(&report::json::document(plan)),
        TextOrJson::Text => {
            context.print(&report::drift_text::text(plan, context.style()));
            note_what_restores(&checked, context);
        }
    }
    let failed = plan.stacks.iter().any(|stack| stack.error.is_some());
    let drifted = plan.stacks.iter().any(|stack| stack.summary.changed() > 0);
    Ok(exit_code(failed, args.exit_code && drifted))
}

/// Prints how the drift can be restored, or why it cannot be.
fn note_what_restores(checked: &DriftReport, context: &CliContext) {
    let drifted = checked.plan.stacks.iter();
    let drifted = drifted.filter(|stack| stack.summary.changed() > 0 && stack.error.is_none());
    let (obstacles, restorable): (Vec<_>, Vec<_>) = drifted
        .map(|stack| (&stack.id, checked.unrestorable.get(&stack.id)))
        .partition(|(_, obstacle)| obstacle.is_some());
    for failure in obstacles.iter().filter_map(|(_, obstacle)| *obstacle) {
        let mut text = failure.message.clone();
        for hint in &failure.hints {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        context.say(&Note::remark(text));
    }
    let stacks = match restorable.as_slice() {
        [] => return,
        [(only, _)] => only.as_str(),
        _ => "STACK",
    };
    context.note(&format!(
        "hint: `konverge apply {stacks} --recorded` restores what was applied last"
    ));
}
