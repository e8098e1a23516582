//! The `konverge` binary: one TLS provider, no core dumps, signals, the exit code. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything opens a connection: two providers, or none, would panic at the first use of TLS.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider was installed before");
    }
    konverge_base::process::forbid_core_dumps();
    konverge::cli::main(std::env::args_os())
}
