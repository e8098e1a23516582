//! `konverge demo`: the preview of a change, in a scratch monorepo that the binary contains.

use std::time::Instant;

use super::{CliContext, completers, demo_apply};
use crate::commands::demo::{self, DemoRepository, EDITS, LineEdit};
use konverge_base::error::UserError;
use konverge_report::{self as report, terminal};
use konverge_run::{
    KeyUse, OpenRequest,
    affected::{AffectedRequest, run as answer},
    cluster_selection::Live,
    session,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge demo
  konverge demo --context kind-konverge

It writes nothing outside of a scratch folder, which is removed at the end, and of the cluster of `--context`. It needs no
git and no network, but the KCL core: `konverge kcl install`.")]
pub struct Args {
    /// Also apply objects to the cluster of this context of the kubeconfig, in a namespace of their own, and delete
    /// them
    #[arg(long, value_name = "NAME", add = completers::contexts())]
    context: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The core is not installed, or the scratch folder cannot be written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let began = Instant::now();
    let style = context.style();
    let outer = context.run();
    let repository = DemoRepository::create(&outer).await?;
    let run = repository.run(&outer);
    let (base, head) = (demo::BASE, demo::HEAD);
    title(
        context,
        "A small monorepo with four stacks, and the change of a pull request",
    );
    for LineEdit { file, from, to } in EDITS {
        context.print(&terminal::file_edit(file, from, to, style));
    }

    title(context, &format!("konverge affected --base {base} --head {head}"));
    let request = AffectedRequest {
        base: Some(base.to_owned()),
        head: Some(head.to_owned()),
        worktree: false,
        all: false,
        exact: false,
    };
    let affected = answer(&run, &request).await?;
    context.print(&terminal::affected(&affected.affected, None, style));

    title(
        context,
        &format!("konverge preview --base {base} --head {head} --live never"),
    );
    let request = OpenRequest {
        rev: Some(head.to_owned()),
        base: Some(base.to_owned()),
        live: Live::Never,
        without_states: true,
        ..OpenRequest::default()
    };
    let session = session::open(&run, &request, KeyUse::Look).await?;
    let preview = konverge_run::preview::run(&session.planning, &session.targets, None).await?;
    context.print(&terminal::plan(&preview.plan, style));

    let well = demo_apply::show(args.context.as_deref(), &repository, &outer, context).await?;
    let took = report::took(began.elapsed());
    title(
        context,
        &format!("Done in {took}. In your own monorepo: konverge init"),
    );
    let failed = preview.plan.stacks.iter().any(|stack| stack.error.is_some());
    Ok(u8::from(failed || !well))
}

fn title(context: &CliContext, text: &str) {
    context.print(&terminal::title(text, context.style()));
}
