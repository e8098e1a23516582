//! `konverge apply`: for a person who has seen the plan, or a script with `--yes`. In CI `konverge ci`
//! applies what was reviewed.

use super::{
    CliContext,
    common_args::{OpenedTargets, TextOrJson, live_by_default},
    confirm::{self, ConfirmedAction},
};
use crate::commands::rollout;
use konverge_base::error::{ErrorKind, UserError};
use konverge_run::{KeyUse, Session, apply::ApplyOptions, cluster_selection::Live};

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("live", live_by_default),
    after_help = "Examples:
  konverge apply storefront/dev                 show the plan, ask, and apply it
  konverge apply --all --yes                    every stack, without a question
  konverge apply storefront/dev --recorded      restore what was applied last
  konverge apply --pending --rev HEAD --yes     in CI: what is not applied yet
  konverge apply storefront/dev --kubeconfig ~/.kube/config --context kind-dev"
)]
pub struct Args {
    #[command(flatten)]
    opened: OpenedTargets,
    /// Skip the confirmation (required without a terminal). `policy.max_destructive` and `policy.drift: stop`
    /// apply then
    #[arg(long, short)]
    yes: bool,
    /// Allow a Spec that has become empty to delete all resources of the stack
    #[arg(long)]
    allow_empty: bool,
    /// Apply what was applied last to the named stacks, not the working tree: the recorded commit, compiled with the
    /// recorded core. It restores drift
    #[arg(long, conflicts_with_all = ["rev", "base", "worktree", "path", "pending", "allow_empty"])]
    recorded: bool,
    /// Don't wait for readiness. Dependents then start when their dependencies are written, not when they are
    /// ready
    #[arg(long)]
    no_wait: bool,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// Runs the command.
///
/// # Errors
/// The stacks cannot be opened, or nobody confirmed. Errors of a stack are in its outcome.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let mut session = open(args, &context.run()).await?;
    let mut unavailable = Vec::new();
    if args.recorded {
        (session.targets, unavailable) =
            konverge_run::recorded_targets(&session.planning, &session.targets).await?;
    }
    if session.targets.is_empty() && session.newer.is_none() && !args.opened.names_stacks() {
        context.note("hint: `konverge apply --pending` takes every stack that is not up to date");
    }
    // A restore brings no new change, so it bypasses no rollout.
    if !args.recorded {
        for note in rollout::passed_by(&session.planning, &session.targets).await? {
            context.say(&note);
        }
    }
    // A missing stack whose removal is uncertain is not destroyed. It is reported with the results.
    let skipped = konverge_run::SkippedRemovals::split_off_planned(&session.planning, &mut session.targets);
    let what = ConfirmedAction::Apply {
        deletes_all: args.allow_empty,
    };
    let approver = confirm::confirm_apply(args.yes, what, &session, &session.targets, context).await?;
    let options = ApplyOptions {
        newer: session.newer_commits(),
        commit: session.commit()?,
        restore: args.recorded,
        allow_empty: args.allow_empty,
        ..ApplyOptions::new(approver)
    };
    let mut ended = konverge_run::apply::run(&session.planning, &session.targets, &options).await?;
    let report = &mut ended.report;
    report.stacks.append(&mut unavailable);
    if let Some(newer) = &session.newer {
        newer.take_out_of(report);
    }
    if let Some(skipped) = &skipped {
        report.stacks.extend(skipped.outcomes());
    }
    Ok(confirm::print_ended(
        &ended,
        &session.planning,
        args.output,
        context,
    ))
}

async fn open(args: &Args, run: &konverge_run::RunContext) -> Result<Session, UserError> {
    if args.recorded && !args.opened.names_stacks() {
        return Err(UserError::new(
            ErrorKind::Usage,
            "`--recorded` needs the names of the stacks to restore",
        )
        .hint("name the stacks, or give `--all`"));
    }
    args.opened
        .open(run, Live::Required, KeyUse::Make, args.no_wait)
        .await
}
