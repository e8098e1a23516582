//! `konverge notify`: the receivers of notifications.

use clap::{Subcommand, builder::PossibleValuesParser};

use super::CliContext;
use crate::commands::notify_test;
use konverge_base::{error::UserError, model::NotifyKind};
use konverge_report::escape::log;
use konverge_run::notify_receivers;
use konverge_secrets::redact;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge notify test                     send a test message to each receiver in konverge.yaml
  konverge notify test --kind dingtalk     to those of one kind

The addresses and keys are read from the variables that `notify` in konverge.yaml names.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Send a test message to each receiver, and print how each one answered
    Test(TestArgs),
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Only receivers of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(NotifyKind::ALL.map(NotifyKind::name)))]
    kind: Option<String>,
}

/// Runs the command. Returns 0 if every receiver took its message, otherwise 1.
///
/// # Errors
/// konverge.yaml cannot be read, or has no such receiver.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let Action::Test(TestArgs { kind }) = &args.action;
    let run = context.run();
    let mut failed = false;
    for receiver in notify_test::receivers(&run, kind.as_deref())? {
        let name = format!("{} in {}", receiver.kind, receiver.url_env);
        match notify_receivers::send_sample(&run, &receiver).await {
            Ok(()) => context.print(&format!("ok      {name}: the receiver took the message\n")),
            Err(failure) => {
                failed = true;
                let failure = redact::failure(&failure, &context.secrets);
                let mut text = format!("FAILED  {name}: {}\n", log(&failure.message));
                for hint in &failure.hints {
                    text.push_str(&format!("          hint: {}\n", log(hint)));
                }
                context.print(&text);
            }
        }
    }
    Ok(u8::from(failed))
}
