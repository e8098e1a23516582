//! `konverge serve`: the pages of the portal and their JSON, from the store.

use std::net::SocketAddr;

use super::CliContext;
use crate::ops::portal::StorePortal;
use konverge_base::error::{ErrorKind, UserError};
use konverge_run::{KeyUse, state};
use konverge_serve::{Portal, listen};

/// Arguments of `konverge serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge serve                           http://127.0.0.1:8080
  konverge serve --listen 127.0.0.1:9000   another port

There is no login yet, so only addresses of this machine are accepted. The process reads the store of `state.url` and
needs nothing else: no credential of a cluster or a cloud. Run it in a checkout to see which changes are pending.")]
pub struct Args {
    /// The address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

/// Runs the command until it is asked to stop.
///
/// # Errors
/// There is no state; the address is not of this machine, or is in use.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    if !args.listen.ip().is_loopback() {
        return Err(UserError::new(
            ErrorKind::Usage,
            format!(
                "{} is not an address of this machine only, and there is no login",
                args.listen.ip()
            ),
        )
        .hint("use `--listen 127.0.0.1:8080`, and let a proxy with a login connect to it"));
    }
    let run = context.run();
    let (backend, _) = state::open(&run, KeyUse::Look).await?;
    context.run().begin_writes()?;
    let listener = listen(args.listen).await?;
    let address = listener.local_addr().map_err(konverge_serve::ListenError::from)?;
    context.print(&format!("http://{address}\n"));
    let stop = run.cancel.clone();
    let source = Box::new(StorePortal::new(run, backend));
    Portal::new(source).serve(listener, stop).await?;
    Ok(0)
}
