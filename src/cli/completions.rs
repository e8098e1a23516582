//! `konverge completions SHELL`, and the response to a shell that requests completions for a word.
//!
//! The script that a shell loads asks the program for each word, so stacks, clusters and revisions are those of the
//! repository (`completers.rs`).

use std::process::ExitCode;

use clap::Command;
use clap_complete::{CompleteEnv, Shell, env::Shells};

use super::CliContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};

/// The environment variable with the name of the requesting shell. Set by the completion script.
const VARIABLE: &str = variables::KONVERGE_COMPLETE;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge completions bash > ~/.local/share/bash-completion/completions/konverge
  konverge completions zsh > ~/.zfunc/_konverge
  konverge completions fish > ~/.config/fish/completions/konverge.fish

The script asks `konverge` for each word: it offers the stacks, clusters and branches of the repository.")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// The shell is unknown.
pub(super) fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name);
    let mut script = Vec::new();
    let written = shell
        .map(|shell| shell.write_registration(VARIABLE, "konverge", "konverge", "konverge", &mut script));
    match written {
        Some(Ok(())) => {
            context.print(&String::from_utf8_lossy(&script));
            Ok(0)
        }
        _ => Err(UserError::new(
            ErrorKind::Usage,
            format!("there is no script for the shell `{name}`"),
        )),
    }
}

/// Responds to the completion request of a shell; `None` if there is no request. Errors are silent, because a person is
/// typing.
pub(super) fn answer(args: &[std::ffi::OsString], command: impl Fn() -> Command) -> Option<ExitCode> {
    let current_dir = std::env::current_dir().ok();
    let answered = CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .bin("konverge")
        .completer("konverge")
        .try_complete(args.to_vec(), current_dir.as_deref());
    match answered {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(_) => Some(ExitCode::FAILURE),
    }
}
