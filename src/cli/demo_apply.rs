//! The second half of `konverge demo`: the applies after a merge, with the tools that this machine has.

use super::CliContext;
use crate::commands::demo::{self, DemoKind, DemoRepository};
use konverge_base::{error::UserError, model::apply_result::ApplyReport};
use konverge_report::{self as report, terminal};
use konverge_run::{RunContext, apply};

/// Shows the applies of each kind that works here, and says what is left out and why. Returns true if all went well.
pub(super) async fn show(
    context: Option<&str>,
    repository: &DemoRepository,
    outer: &RunContext,
    cli: &CliContext,
) -> Result<bool, UserError> {
    let mut well = true;
    let terraform = outer.checkout().find(&["terraform", "tofu"]).is_ok();
    if terraform {
        well &= show_kind(&DemoKind::Terraform, repository, outer, cli).await?;
    }
    if let Some(context) = context {
        let kind = DemoKind::Kubernetes {
            context: context.to_owned(),
        };
        well &= show_kind(&kind, repository, outer, cli).await?;
    }
    if !terraform {
        cli.note("left out: the apply of Terraform resources, because neither `terraform` nor `tofu` is on the PATH");
    }
    if context.is_none() {
        cli.note("left out: the apply of Kubernetes objects, because no cluster was named: `konverge demo --context NAME`");
    }
    cli.note("left out: the review on a pull request, which needs GitHub; here the merge is only a commit");
    Ok(well)
}

async fn show_kind(
    kind: &DemoKind,
    repository: &DemoRepository,
    outer: &RunContext,
    cli: &CliContext,
) -> Result<bool, UserError> {
    let style = cli.style();
    let title = |text: &str| cli.print(&terminal::title(text, style));
    let print = |applied: &ApplyReport| cli.print(&report::outcome::text(applied, style));
    let what = match kind {
        DemoKind::Terraform => "Terraform resources",
        DemoKind::Kubernetes { .. } => "Kubernetes objects in a namespace of their own",
    };
    let run = &repository.merge(kind, outer)?;
    title(&format!(
        "The merge: two stacks of {what}. The run is asked to stop after the first"
    ));
    let shown = async {
        print(&demo::apply_pending(run, true).await?);
        title("konverge apply --pending: the next run continues where the last one stopped");
        let applied = demo::apply_pending(run, false).await?;
        print(&applied);
        title("konverge status: what is recorded, and how the resources are");
        let status = demo::status(run).await?;
        cli.print(&report::status_text::text(
            &status,
            report::status_text::StatusRows::All,
            style,
        ));
        title("konverge drift: does what runs differ from what was applied?");
        let drift = demo::drift(run).await?;
        cli.print(&report::drift_text::text(&drift.plan, style));
        Ok::<bool, UserError>(apply::ended_well(&applied))
    };
    let shown = shown.await;
    title("konverge destroy: everything is deleted again");
    let destroyed = demo::destroy(run).await?;
    print(&destroyed);
    if *kind == DemoKind::Terraform {
        cli.note("left out: a change by hand, because `terraform_data` exists only in the state");
    }
    Ok(shown? && apply::ended_well(&destroyed))
}
