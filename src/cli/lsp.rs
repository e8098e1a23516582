//! `konverge lsp`: a language server on stdin and stdout.

use std::sync::Arc;

use super::CliContext;
use crate::commands::{editor::EditorSession, machine_key::MachineKey};
use konverge_base::{error::UserError, model::event::NoEvents};
use konverge_lsp::{SessionEnd, serve};
use konverge_run::RunContext;

/// Arguments of `konverge lsp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge lsp             started by an editor, which speaks the Language Server Protocol

It stands beside KCL's own server and repeats nothing of it. It never applies anything. The guide `editor` has the lines
for VS Code, Neovim, Helix and IntelliJ.")]
pub struct Args {
    /// Speak on stdin and stdout. It is the default; editors give it by custom
    #[arg(long)]
    stdio: bool,
}

/// Runs the command until the editor says `exit`, or closes the input.
///
/// # Errors
/// The input is not a stream of messages.
pub(super) async fn run(_args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let _hidden = context.hide_progress();
    let run = RunContext {
        secrets: MachineKey::read(&run).secrets,
        events: Arc::new(NoEvents),
        ..run
    };
    let folder = run.dir.clone();
    let session = Arc::new(EditorSession::new(run));
    match serve(session, &folder, std::io::stdin(), std::io::stdout()).await? {
        SessionEnd::Orderly => Ok(0),
        SessionEnd::WithoutShutdown => Ok(1),
    }
}
