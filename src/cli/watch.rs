//! `konverge watch`: shows what each save changes.

use super::{
    CliContext,
    common_args::ClusterArg,
    common_args::{CHANGE, INFRASTRUCTURE},
    completers,
};
use crate::commands::{machine_key::MachineKey, watch::Watch};
use konverge_base::{
    error::UserError,
    model::watch_event::{WatchEvent, WatchEventKind},
};
use konverge_repo::git::Repository;
use konverge_report::{json, watch as report};
use konverge_run::{OpenRequest, RunContext, Selection, StackSelector, cluster_selection::Live};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge watch                     every stack that a save affects
  konverge watch storefront/dev      one stack
  konverge watch --preview           against the live infrastructure
  konverge watch --output json       one line for each event")]
pub struct Args {
    /// Only these stacks, by identity, folder, project or glob (`storefront/*`); default: every stack that a save
    /// affects
    #[arg(value_name = "STACK", add = completers::stacks())]
    names: Vec<StackSelector>,
    /// Compare with this revision; default: the merge base with the default branch
    #[arg(long, value_name = "REV", help_heading = CHANGE, add = completers::revisions())]
    base: Option<String>,
    /// Show the plan against the live infrastructure instead of the difference of Specs
    #[arg(long, help_heading = INFRASTRUCTURE)]
    preview: bool,
    #[command(flatten)]
    cluster: ClusterArg,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One JSON document in each line, one for each event
    Json,
}

/// Runs the command until it is interrupted, which is its normal end.
///
/// # Errors
/// The working tree cannot be opened or watched, or was removed.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let run = RunContext {
        secrets: MachineKey::read(&run).secrets,
        ..run
    };
    let request = OpenRequest {
        selection: if args.names.is_empty() {
            Selection::Affected
        } else {
            Selection::Named(args.names.clone())
        },
        base: args.base.clone(),
        live: if args.preview { Live::Auto } else { Live::Never },
        given: args.cluster.given(),
        ..OpenRequest::default()
    };
    match watch(args, context, &run, &request).await {
        Err(_) if run.cancel.is_cancelled() => Ok(0),
        ended => ended,
    }
}

async fn watch(
    args: &Args,
    context: &CliContext,
    run: &RunContext,
    request: &OpenRequest,
) -> Result<u8, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let mut watch = Watch::open(run, &repository, request, args.preview).await?;
    print(args, context, &watch.first_event().await?);
    loop {
        let event = tokio::select! {
            biased;
            () = run.cancel.cancelled() => return Ok(0),
            event = watch.next_event() => event?,
        };
        print(args, context, &event);
    }
}

fn print(args: &Args, context: &CliContext, event: &WatchEvent) {
    match args.output {
        Output::Json => context.print(&json::document(event)),
        Output::Text => {
            context.print(&report::text(event, context.shown_stacks(), context.style()));
            if event.event == WatchEventKind::Start {
                context.note("Watching: save a file to see what it changes. Ctrl-C ends it.");
            }
        }
    }
}
