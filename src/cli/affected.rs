//! `konverge affected`: the stacks that a change affects, and why.

use std::num::NonZeroU32;

use super::{
    CliContext,
    common_args::{Revisions, exit_code, head_by_default},
    completers,
};
use crate::commands::{github_matrix::Matrix, selected_stacks, spec_difference::SpecDifference};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::affected::InputKind,
};
use konverge_report::{escape::log, json, mermaid, terminal};
use konverge_run::{
    OpenRequest, Selection, StackSelector,
    affected::{AffectedReport, AffectedRequest, run as answer},
    compiler::Compilers,
};

/// The maximum number of boxes in the diagram of `--output mermaid`: more than in a comment, but still readable.
const DRAWN: usize = 2_000;

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("rev", head_by_default),
    after_help = "Examples:
  konverge affected                               what HEAD changes against the default branch
  konverge affected --worktree                    include uncommitted changes
  konverge affected --diff                        and how their Specs differ
  konverge affected --base v1.0 --head v1.1
  konverge affected --output matrix --shards 8    the jobs of a matrix
  konverge affected storefront/dev --output argocd-paths

On a terminal the text shows the first 15 stacks; `--output folders` lists all."
)]
pub struct Args {
    /// With `--output argocd-paths`: the stacks, affected or not
    #[arg(value_name = "STACK", conflicts_with_all = ["all", "exact", "base"], add = completers::stacks())]
    names: Vec<StackSelector>,
    #[command(flatten)]
    revisions: Revisions,
    /// Select every stack, whatever changed
    #[arg(long, conflicts_with = "base")]
    all: bool,
    /// Compile both sides and compare the Specs, to find stacks whose Spec did not change
    #[arg(long)]
    exact: bool,
    /// Compile both sides and show how the Specs differ; no cluster, state or store is read
    #[arg(long, conflicts_with_all = ["all", "exact", "output", "exit_code"])]
    diff: bool,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Split the stacks across at most N jobs of a GitHub matrix (1 to 256)
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_shards)]
    shards: NonZeroU32,
    /// Exit with 2 if a stack is affected
    #[arg(long)]
    exit_code: bool,
}

fn parse_shards(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse()
        .map_err(|_| "it must be a whole number from 1 to 256")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
    /// GitHub's `strategy.matrix`, see --shards
    Matrix,
    /// A Mermaid diagram of the reasons, which GitHub renders in Markdown
    Mermaid,
    /// Only the folders, one per line
    Folders,
    /// The value of `argocd.argoproj.io/manifest-generate-paths` of each stack, after its identity and a tab
    ArgocdPaths,
}

/// Runs the command.
///
/// # Errors
/// A revision cannot be found or read, or there is no `kcl.mod`.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    if !args.names.is_empty() && args.output != Output::ArgocdPaths {
        return Err(UserError::new(
            ErrorKind::Usage,
            "STACK is for `--output argocd-paths`: this command finds the stacks itself",
        )
        .hint("`konverge affected` shows what a change affects; `konverge preview STACK` takes stacks"));
    }
    if args.output == Output::ArgocdPaths {
        return argocd_paths(args, context).await;
    }
    let question = AffectedRequest {
        base: args.revisions.base.clone(),
        head: args.revisions.rev.clone(),
        worktree: args.revisions.worktree,
        all: args.all,
        exact: args.exact,
    };
    let run = context.run();
    let answer = answer(&run, &question).await?;
    say_problems(&answer, context);
    let affected = &answer.affected;
    if args.diff {
        return show_difference(&answer, context).await;
    }
    match args.output {
        Output::Text => {
            if let (Some(base), Some(head)) = (&affected.base, &affected.head) {
                context.note(&format!("Comparing {} with {}.", head.short(), base.short()));
            }
            context.print(&terminal::affected(
                affected,
                context.shown_stacks(),
                context.style(),
            ));
        }
        Output::Json => context.print(&json::document(affected)),
        Output::Matrix => context.print(&json::document(&Matrix::of_shares(
            args.shards,
            affected.stacks.len(),
        )?)),
        Output::Mermaid => {
            context.print(&mermaid::requested(affected, DRAWN).unwrap_or_else(|| "graph LR\n".to_owned()))
        }
        Output::ArgocdPaths => {}
        Output::Folders => {
            let folders = affected
                .stacks
                .iter()
                .map(|stack| format!("{}\n", log(stack.stack.as_str())));
            context.print(&folders.collect::<String>());
        }
    }
    let code = exit_code(false, args.exit_code && !affected.stacks.is_empty());
    // The process ends after this, so the memory is not freed: that would take a tenth of the time.
    answer.finish_leaking();
    Ok(code)
}

/// Prints the paths that affect each stack: of the named stacks, or of those that the change affects.
async fn argocd_paths(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let request = OpenRequest {
        selection: match (args.all, args.names.is_empty()) {
            (true, _) => Selection::All,
            (false, true) => Selection::Affected,
            (false, false) => Selection::Named(args.names.clone()),
        },
        rev: if args.revisions.worktree {
            None
        } else {
            args.revisions.rev.clone().or_else(|| Some("HEAD".to_owned()))
        },
        base: args.revisions.base.clone(),
        ..OpenRequest::default()
    };
    let selected = selected_stacks::open(&context.run(), &request).await?;
    let mut lines = String::new();
    for stack in &selected.stacks {
        let paths = selected.workspace.analysis.argocd_paths(stack)?;
        lines.push_str(&format!("{}\t{}\n", stack.id, log(&paths)));
    }
    context.print(&lines);
    Ok(exit_code(false, args.exit_code && !selected.stacks.is_empty()))
}

/// Shows the affected stacks with the difference of their Specs; returns 1 if one does not compile.
async fn show_difference(answer: &AffectedReport, context: &CliContext) -> Result<u8, UserError> {
    let style = context.style();
    let run = context.run();
    context.print(&terminal::affected(
        &answer.affected,
        context.shown_stacks(),
        style,
    ));
    let revisions = &answer.revisions;
    let targets = revisions.targets(&answer.affected);
    if targets.is_empty() {
        return Ok(0);
    }
    let compilers = Compilers::new(&run, &revisions.head.config);
    let plan = SpecDifference::default()
        .plan(&run, &compilers, revisions, &targets)
        .await?;
    context.print(&terminal::plan(&plan, style));
    Ok(u8::from(plan.stacks.iter().any(|stack| stack.error.is_some())))
}

/// Shows the errors in single files, unless the stack's own line shows them.
fn say_problems(answer: &AffectedReport, context: &CliContext) {
    for problem in &answer.revisions.head.layout.problems {
        let unresolved = answer.affected.stacks.iter().any(|stack| {
            stack
                .why
                .iter()
                .any(|why| why.kind == InputKind::Unresolved && why.path == problem.file)
        });
        let mut failure = UserError::from(problem.clone());
        if unresolved {
            failure = failure
                .hint("its stack counts as affected until this is fixed; other stacks are not influenced");
        }
        context.print_failure(&failure);
    }
}
