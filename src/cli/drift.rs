//! `konverge drift`: what differs from what was applied last.

use super::{
    Context,
    apply::Output,
    common_args::{Infrastructure, LiveArg, Stacks, always_asked, every_by_default},
};
use crate::{
    error::{ErrorKind, Failure},
    ops::{self, KeyUse, Request, Selection, cluster_selection::Live, open},
    report::{self, terminal::Style},
};

/// Arguments of `konverge drift`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("names", every_by_default), mut_arg("live", always_asked))]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    infrastructure: Infrastructure,
    /// How the result is printed
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Exit with 2 if anything drifted
    #[arg(long)]
    exit_code: bool,
}

/// Runs the command. Without stacks every one is looked at.
///
/// # Errors
/// Whatever keeps the stacks from being opened. A stack that can not be looked at is shown, and gives exit code 1.
pub async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.infrastructure.live == LiveArg::Never {
        return Err(Failure::new(
            ErrorKind::Usage,
            "drift is a difference to what is there: `--live never` can not see it",
        ));
    }
    let request = Request {
        shard: args.stacks.shard,
        selection: match args.stacks.selection() {
            Selection::Affected => Selection::All,
            chosen => chosen,
        },
        live: Live::Required,
        given: args.infrastructure.given(),
        ..Request::default()
    };
    let session = open::open_named(&context.run(), &request, KeyUse::Look).await?;
    let plan = ops::drift::run(&open.planning, &open.targets, None).await?;
    context.print(&match args.output {
        Output::Json => report::json::document(&plan),
        Output::Text => report::drift::text(
            &plan,
            Style {
                color: context.colour(),
            },
        ),
    });
    let failed = plan.stacks.iter().any(|stack| stack.error.is_some());
    let drifted = plan.stacks.iter().any(|stack| stack.summary.changed() > 0);
    Ok(match (failed, drifted && args.exit_code) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    })
}
