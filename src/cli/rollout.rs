//! `konverge rollout`: shows the progress of rollouts, and pauses, resumes or aborts one.

use super::{CliContext, common_args::TextOrJson};
use crate::commands::rollout;
use konverge_base::error::UserError;
use konverge_rollout::RolloutCommand;

/// Arguments of `konverge rollout`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  konverge rollout list                              how far each rollout of konverge.yaml is
  konverge rollout status web                        its waves, its stacks, and what it waits for
  konverge rollout pause web --reason incident       no further stack, until it is resumed
  konverge rollout resume web --reason fixed
  konverge rollout abort web --reason superseded     its commit is held until a newer one, or until it is resumed

These commands apply nothing: they write what the next run of `konverge ci` finds. A run that applies a stack of the
rollout asks again before each stack."
)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the rollouts
    List(FormArgs),
    /// Show one rollout
    Status {
        /// The name of the rollout
        name: String,
        #[command(flatten)]
        form: FormArgs,
    },
    /// Let no further stack go, until it is resumed
    Pause(ChangeArgs),
    /// Continue a paused rollout, or try the wave of a stopped one again
    Resume(ChangeArgs),
    /// End a rollout before its last wave, and hold its commit
    Abort(ChangeArgs),
}

/// The option for the format of a result.
#[derive(Debug, clap::Args)]
struct FormArgs {
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

impl FormArgs {
    fn is_json(&self) -> bool {
        self.output == TextOrJson::Json
    }
}

/// A change of a rollout.
#[derive(Debug, clap::Args)]
struct ChangeArgs {
    /// The name of the rollout
    name: String,
    /// The reason; it is kept and shown
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Runs `konverge rollout`.
///
/// # Errors
/// There is no store, no such rollout, or it cannot be changed so; errors of the store.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let (change, command) = match &args.action {
        Action::List(form) => {
            context.print(&rollout::list(&run, form.is_json()).await?);
            return Ok(0);
        }
        Action::Status { name, form } => {
            context.print(&rollout::status(&run, name, form.is_json()).await?);
            return Ok(0);
        }
        Action::Pause(change) => (change, RolloutCommand::Pause),
        Action::Resume(change) => (change, RolloutCommand::Resume),
        Action::Abort(change) => (change, RolloutCommand::Abort),
    };
    context.note(&rollout::change(&run, &change.name, command, &change.reason).await?);
    Ok(0)
}
