//! `konverge destroy`: deletes all resources of stacks, in the reverse of their order.

use super::{
    CliContext,
    common_args::{InfrastructureArgs, TextOrJson, WithoutArgs, live_by_default},
    completers,
    confirm::{self, ConfirmedAction},
};
use konverge_base::error::UserError;
use konverge_run::{
    KeyUse, OpenRequest, Selection, StackSelector, apply::ApplyOptions, cluster_selection::Live, session,
};

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("live", live_by_default),
    after_help = "Examples:
  konverge destroy storefront/dev          show what is deleted, ask, and delete it
  konverge destroy 'storefront/*' --yes    all stacks of a project, without a question"
)]
pub struct Args {
    /// The stacks, by identity, folder, project or glob (`storefront/*`); also stacks that only the state knows
    #[arg(value_name = "STACK", required = true, add = completers::recorded_stacks())]
    names: Vec<StackSelector>,
    #[command(flatten)]
    infrastructure: InfrastructureArgs,
    #[command(flatten)]
    without: WithoutArgs,
    /// Skip the confirmation (required without a terminal)
    #[arg(long, short)]
    yes: bool,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// Runs the command.
///
/// # Errors
/// The stacks cannot be opened, or nobody confirmed. Errors of a stack are in its outcome.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let request = OpenRequest {
        selection: Selection::Named(args.names.clone()),
        recorded: true,
        live: Live::Required,
        given: args.infrastructure.given_cluster(),
        without: args.without.stacks.clone(),
        ..OpenRequest::default()
    };
    let session = session::open_named(&context.run(), &request, KeyUse::Make).await?;
    let targets: Vec<_> = session
        .targets
        .iter()
        .map(konverge_run::Target::destroyed)
        .collect();
    let approver =
        confirm::confirm_apply(args.yes, ConfirmedAction::Destroy, &session, &targets, context).await?;
    let options = ApplyOptions {
        allow_empty: true,
        ..ApplyOptions::new(approver)
    };
    let ended = konverge_run::apply::run(&session.planning, &targets, &options).await?;
    Ok(confirm::print_ended(
        &ended,
        &session.planning,
        args.output,
        context,
    ))
}
