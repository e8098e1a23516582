//! `konverge apply`: for a person who has seen the plan, or a script that says `--yes`. In CI it is `konverge ci` that
//! applies what was reviewed.

use super::{
    CliContext,
    common_args::{LiveArg, OpenedTargets, always_asked},
    confirm::{self, Asked},
};
use crate::{
    error::{ErrorKind, UserError},
    ops::{self, KeyUse, Session, apply::ApplyOptions, cluster_selection::Live},
    report::{self, terminal::Style},
};

/// Arguments of `konverge apply`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("live", always_asked))]
pub struct Args {
    #[command(flatten)]
    opened: OpenedTargets,
    /// Skip confirmation (required without a terminal). `policy.max_delete` and `policy.drift: stop` hold then
    #[arg(long, short)]
    yes: bool,
    /// Let a Spec that has become empty delete everything the stack made
    #[arg(long)]
    allow_empty: bool,
    /// Be done when everything is written, whether it becomes ready or not; what must come after something else then
    /// comes after its writing only
    #[arg(long)]
    no_wait: bool,
    /// How the result is printed
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = ApplyOutput::Text)]
    pub output: ApplyOutput,
}

/// How an outcome is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ApplyOutput {
    /// For a terminal
    Text,
    /// As the reference of JSON formats has it
    Json,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the stacks from being opened, or nobody agreed. What goes wrong with a stack is in the outcome.
pub async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let mut session = open(args, &context.run()).await?;
    let skipped = ops::SkippedRemovals::take_planned(&session.planning, &mut session.targets);
    let what = Asked::Apply {
        deletes_all: args.allow_empty,
    };
    let consent = confirm::consent(args.yes, what, &session.planning, &session.targets, context).await?;
    let Some(consent) = consent else {
        context.note("nothing was applied");
        return Ok(0);
    };
    let options = ApplyOptions {
        consent,
        newer: None,
        commit: session.commit()?,
        pull_requests: Vec::new(),
        restore: false,
        allow_empty: args.allow_empty,
        rolled_back_to: None,
    };
    let mut report = ops::apply::run(&session.planning, &session.targets, &options).await?;
    if let Some(skipped) = &skipped {
        report.stacks.extend(skipped.outcomes());
    }
    context.print(&match args.output {
        ApplyOutput::Text => report::terminal::outcome(
            &report,
            Style {
                color: context.colour(),
            },
        ),
        ApplyOutput::Json => report::json::document(&report),
    });
    Ok(ops::apply::exit_code(&report, context.cancel.is_cancelled()))
}

async fn open(args: &Args, run: &ops::RunContext) -> Result<Session, UserError> {
    if args.opened.infrastructure.live == LiveArg::Never {
        return Err(
            UserError::new(ErrorKind::Usage, "nothing can be applied with `--live never`")
                .hint("`konverge preview --live never` compares Spec with Spec"),
        );
    }
    args.opened
        .open(run, Live::Required, KeyUse::Make, args.no_wait)
        .await
}
