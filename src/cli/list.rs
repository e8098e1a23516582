//! `konverge list`: the stacks of the repository.

use serde_json::{Value, json};

use super::{
    CliContext,
    common_args::{Stacks, all_by_default, every_by_default},
    completers,
};
use crate::commands::selected_stacks;
use konverge_base::{error::UserError, model::stack::Stack};
use konverge_report::{escape::log, json};
use konverge_run::OpenRequest;

/// Arguments of `konverge list`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("names", every_by_default),
    mut_arg("all", all_by_default),
    after_help = "Examples:\n  konverge list                     every stack\n  konverge list 'storefront/*'      the stacks of a project\n\n\
                  `konverge state list` shows what is recorded, also of stacks that the repository does not have any more."
)]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    /// Read this revision instead of the working tree
    #[arg(long = "head", visible_alias = "rev", value_name = "REV", add = completers::revisions())]
    rev: Option<String>,
    /// How the stacks are printed
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Identity and folder, one stack a line
    Text,
    /// For programs
    Json,
    /// The folders alone, one a line
    Folders,
}

/// Returns a stack as the JSON lists it.
fn listed(stack: &Stack) -> Value {
    json!({
        "stack": stack.folder,
        "id": stack.id,
        "project": stack.names.project(),
        "name": stack.names.name(),
        "namedBy": stack.named_by,
    })
}

/// Runs the command.
///
/// # Errors
/// The repository cannot be read, or a name means no stack.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let request = OpenRequest {
        selection: args.stacks.selection_or_all()?,
        shard: args.stacks.shard,
        rev: args.rev.clone(),
        ..OpenRequest::default()
    };
    let selected = selected_stacks::open(&context.run(), &request).await?;
    let stacks = &selected.stacks;
    let text = match args.output {
        Output::Json => {
            let stacks: Vec<_> = stacks.iter().map(listed).collect();
            json::document(&json!({"version": 1, "stacks": stacks}))
        }
        Output::Folders => lines(stacks, |stack| log(stack.folder.as_str())),
        Output::Text => {
            let width = stacks
                .iter()
                .map(|stack| stack.id.as_str().len())
                .max()
                .unwrap_or(0);
            lines(stacks, |stack| {
                format!("{:width$}  {}", stack.id.as_str(), log(stack.folder.as_str()))
            })
        }
    };
    context.print(&text);
    if stacks.is_empty() {
        context.note(
            "there is no stack\n  hint: a folder with a stack.yaml below a folder with a project.yaml is one, once `git add` knows it",
        );
    }
    Ok(0)
}

fn lines(stacks: &[Stack], line: impl Fn(&Stack) -> String) -> String {
    stacks.iter().map(|stack| line(stack) + "\n").collect()
}
