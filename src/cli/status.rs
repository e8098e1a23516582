//! `konverge status`: the applied revision, pending changes and health of stacks.

use super::{
    CliContext,
    common_args::{InfrastructureArgs, Stacks, TextOrJson, all_by_default, every_by_default, exit_code},
};
use crate::commands::{rollout, status};
use konverge_base::{error::UserError, model::note::Note};
use konverge_report as report;
use konverge_run::{KeyUse, OpenRequest, Selection, apply_freeze, session};

/// Arguments of `konverge status`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("names", every_by_default),
    mut_arg("all", all_by_default),
    mut_arg("live", |live| live.help("Query live objects: if a cluster is configured (auto), never, or fail without a cluster (required)").hide_possible_values(true)),
    after_help = "Examples:\n  konverge status                       stacks that are not up to date or not ready, the worst first\n  konverge status storefront/dev        one stack, also if all is well\n  konverge status --watch               until no rollout is in progress\n\n\
                  Without stacks every one is shown, also those that only the state knows."
)]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    infrastructure: InfrastructureArgs,
    /// Watch until no rollout is in progress
    #[arg(long)]
    watch: bool,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
    /// Exit with 2 if anything is not applied or not ready
    #[arg(long)]
    exit_code: bool,
}

/// Runs the command.
///
/// # Errors
/// The stacks cannot be opened. A stack with an unknown status is shown, and gives exit code 1.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let selection = args.stacks.selection_or_all()?;
    let request = OpenRequest {
        selection: selection.clone(),
        recorded: true,
        live: args.infrastructure.live.into(),
        given: args.infrastructure.given_cluster(),
        ..OpenRequest::default()
    };
    let session = session::open(&context.run(), &request, KeyUse::Look).await?;
    if let Some(backend) = &session.planning.backend
        && let Some(freeze) = backend.states.freeze().await?
    {
        context.say(&Note::warning(apply_freeze::sentence(&freeze)));
    }
    for note in rollout::under_way(&session.planning).await? {
        context.say(&note);
    }
    let mut targets = status::targets(&session, &selection).await?;
    if let Some(shard) = args.stacks.shard {
        shard.keep(&mut targets);
    }
    let status = if args.watch {
        status::watch(&session.planning, &targets).await?
    } else {
        status::run(&session.planning, &targets).await?
    };
    context.print(&match args.output {
        TextOrJson::Json => report::json::document(&status),
        TextOrJson::Text => report::status_text::text(
            &status,
            match selection {
                Selection::Named(_) => report::status_text::StatusRows::All,
                _ => report::status_text::StatusRows::NotReady,
            },
            context.style(),
        ),
    });
    let failed = status.stacks.iter().any(|stack| stack.error.is_some());
    let well = status.stacks.iter().all(|stack| stack.is_applied_and_ready());
    Ok(exit_code(failed, args.exit_code && !well))
}
