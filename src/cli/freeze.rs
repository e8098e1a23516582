//! `konverge freeze` and `konverge unfreeze`: stop all applies, and let them run again.

use super::CliContext;
use konverge_base::error::UserError;
use konverge_report::escape::log;
use konverge_run::{
    KeyUse,
    apply_freeze::{self, EndedFreeze},
    state,
};

/// Arguments of `konverge freeze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge freeze --reason failover     stop all applies until `konverge unfreeze`

The freeze is kept in the store of `state.url`. Every apply reads it before it touches a stack: of a merge, of a
dispatch, by hand, a destroy, a rollback, and the restore of drift. A stack that is being applied ends as usual.
Previews and drift checks continue.")]
pub struct Args {
    /// The reason; every run that is stopped shows it
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Arguments of `konverge unfreeze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge unfreeze --reason done     let applies run; the next run applies what is pending")]
pub struct UnfreezeArgs {
    /// The reason; it is kept beside the one of the freeze
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Runs `konverge freeze`.
///
/// # Errors
/// There is no store or no reason; errors of the store.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let (backend, _) = state::open(&context.run(), KeyUse::Look).await?;
    context.run().begin_writes()?;
    apply_freeze::begin(&backend, &args.reason).await?;
    // Earlier freezes stay in force, because whoever froze applies waits for something. Show how many there are.
    let reasons = backend
        .states
        .freeze()
        .await?
        .map_or(0, |freeze| freeze.reasons.len());
    context.note(match reasons {
        0 | 1 => "applies are frozen; `konverge unfreeze --reason TEXT` lets them run again",
        _ => {
            "applies were frozen before, and both reasons are kept: `konverge status` shows them; `konverge unfreeze \
             --reason TEXT` ends both"
        }
    });
    Ok(0)
}

/// Runs `konverge unfreeze`.
///
/// # Errors
/// There is no store or no reason; errors of the store.
pub(super) async fn run_unfreeze(args: &UnfreezeArgs, context: &CliContext) -> Result<u8, UserError> {
    let (backend, _) = state::open(&context.run(), KeyUse::Look).await?;
    context.run().begin_writes()?;
    context.note(&match apply_freeze::end(&backend, &args.reason).await? {
        EndedFreeze::Nothing => "applies were not frozen".to_owned(),
        EndedFreeze::Unreadable => "applies run again; before, the freeze could not be read".to_owned(),
        EndedFreeze::Freeze(before) => format!(
            "applies run again; before: {}",
            log(&apply_freeze::sentence(&before))
        ),
    });
    Ok(0)
}
