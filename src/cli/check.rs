//! `konverge check`: the checks of a Konfig repository.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{
    CliContext,
    common_args::{Revisions, Stacks},
};
use crate::commands::{
    check::{self, CheckScope, FileScope, workflow_commands},
    selected_stacks,
};
use konverge_base::{error::UserError, model::lint::LintRule};
use konverge_report::{json, lint as report};
use konverge_run::{Selection, repository_root};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge check                    what the change touches
  konverge check --all              the whole repository
  konverge check --fix              format the files, too
  konverge check --staged           what the next commit changes, in a git hook
  konverge check --update           rewrite the golden files")]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    revisions: Revisions,
    /// Check what is staged, as the next commit will hold it, against HEAD
    #[arg(long, conflicts_with_all = ["names", "all", "base", "rev", "worktree", "update", "fix"])]
    staged: bool,
    /// Write golden files (ci-test/stdout.golden.yaml) that differ, in the layout that they have
    #[arg(long, conflicts_with = "rev")]
    update: bool,
    /// Format the KCL files that are checked
    #[arg(long, conflicts_with = "rev")]
    fix: bool,
    /// Run only the policy sets (`policy.sets`) and their tests
    #[arg(long, conflicts_with_all = ["update", "fix"])]
    policy: bool,
    /// Skip a check; may be repeated
    #[arg(long, value_name = "CHECK", value_parser = checks())]
    skip: Vec<LintRule>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

fn checks() -> impl TypedValueParser<Value = LintRule> {
    PossibleValuesParser::new(LintRule::ALL.map(LintRule::name))
        .try_map(|name| LintRule::from_name(&name).ok_or("one of the checks listed"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands, which GitHub shows at the lines of the files
    Annotations,
}

/// Runs the command; returns 1 if there is any error.
///
/// # Errors
/// The repository or the core is not available.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let request = args.stacks.of(&args.revisions);
    let files = match request.selection {
        Selection::All => FileScope::All,
        Selection::Named(_) => FileScope::Stacks,
        Selection::Affected => FileScope::Change,
    };
    let root = repository_root(&run.dir)?;
    let selected = if args.staged {
        selected_stacks::open_staged(&run, request.shard).await?
    } else {
        selected_stacks::open(&run, &request).await?
    };
    let scope = CheckScope {
        files,
        update: args.update,
        fix: args.fix,
        only_policy: args.policy,
        skip: &args.skip,
        also: &[],
    };
    let inspection = check::run(&run, &selected, &root, scope).await?;
    let text = match args.output {
        Output::Text => report::text(&inspection),
        Output::Json => json::document(&inspection),
        Output::Sarif => json::document(&report::sarif(&inspection)),
        Output::Annotations => workflow_commands(&report::annotations(&inspection)),
    };
    context.print(&text);
    Ok(u8::from(inspection.failed()))
}
