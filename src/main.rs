//! The `konverge` binary: the CI agent of a Konfig monorepo. One TLS provider, no core dumps, signals, the exit code.
//!
//! The rooms in the order of a change; `ARCHITECTURE.md` is the map with the allowed directions.
//!
//! ```text
//! git ─► konfig ─► affected ─► kcl ─► spec ─► engine ─► runtime ─► state ─► report ─► github
//! ```

// The futures of a job are nested more deeply than rustc's default of 128 allows.
#![recursion_limit = "256"]

pub mod cli;
pub mod commands;

use std::process::ExitCode;

/// A plan allocates millions of small values on one core and frees them on another. glibc's allocator spends a third of
/// its time on that (`cargo bench --bench kubernetes`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Install the provider before anything opens a connection: with none or two, the first use of TLS would panic.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider was installed before");
    }
    konverge_base::process::forbid_core_dumps();
    cli::main(std::env::args_os())
}
