//! `konverge test`: stack tests on compiled Specs, or on a cluster.

use std::path::PathBuf;

use super::{
    CliContext,
    common_args::{Revisions, Stacks, TextOrJson},
};
use crate::commands::selected_stacks;
use konverge_base::{
    atomic_file,
    error::{ErrorKind, UserError},
};
use konverge_report::{json, stack_test_results as report};
use konverge_run::Selection;
use konverge_stack_tests as stack_tests;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge test                          the tests of the stacks that the change affects
  konverge test storefront/prod          of one stack
  konverge test --all --junit tests.xml  of all stacks, with a report for the CI service
  konverge test storefront/dev --live    its live tests, in throw-away namespaces
  konverge test --sweep                  delete what killed live tests left

A test is a file <stack>/test/NAME.test.yaml:
  name: production has an ingress with TLS
  assert:
    - {kind: Ingress, name: storefront, has: {spec: {tls: [{hosts: [shop.example.com]}]}}}")]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    revisions: Revisions,
    /// Run the live tests (those with `steps`) instead, on a cluster with `tests: true` in the konverge.yaml of the
    /// default branch
    #[arg(long)]
    live: bool,
    /// Delete what killed live tests left, and run nothing
    #[arg(long, conflicts_with_all = ["live", "junit", "names", "all", "shard", "rev", "base"])]
    sweep: bool,
    /// Write the results as JUnit XML, too
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// Runs the command; returns 1 if a test did not pass.
///
/// # Errors
/// The repository or the core is not available, or the report cannot be written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    if args.sweep {
        let swept = stack_tests::live::sweep(&run).await?;
        context.note(&match swept {
            0 => "no live test left anything".to_owned(),
            1 => "cleaned up 1 live test".to_owned(),
            n => format!("cleaned up {n} live tests"),
        });
        return Ok(0);
    }
    let request = args.stacks.of(&args.revisions);
    let is_named = request.selection != Selection::Affected && request.shard.is_none();
    let selected = selected_stacks::open(&run, &request).await?;
    let report = if args.live {
        stack_tests::live::run(&run, &selected.workspace, &selected.stacks).await?
    } else {
        stack_tests::run(&run, &selected.workspace, &selected.stacks, is_named).await?
    };
    if let Some(file) = &args.junit {
        let xml = context.secrets.mask_finished(&report::junit(&report));
        let path = context.current_dir.join(file);
        // Replace a link at this path instead of following it: the link may come from the repository.
        atomic_file::write(&path, xml.as_bytes()).map_err(|error| {
            UserError::from_error(ErrorKind::Usage, error)
                .context("the report cannot be written")
                .at(file.display().to_string(), None, None)
                .hint("give `--junit` a file in a folder that can be written to")
        })?;
    }
    let text = match args.output {
        TextOrJson::Text => report::text(&report, context.style()),
        TextOrJson::Json => json::document(&report),
    };
    context.print(&text);
    Ok(u8::from(report.failed()))
}
