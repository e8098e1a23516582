//! The `konverge` binary: the CI agent of a Konfig monorepo. One TLS provider, no core dumps, signals, the exit code.
//!
//! The rooms in the order of a change; `ARCHITECTURE.md` is the map with the allowed directions.
//!
//! ```text
//! git ─► konfig ─► affected ─► kcl ─► spec ─► engine ─► runtime ─► state ─► report ─► github
//! ```

pub mod cli;
pub mod ops;

use std::process::ExitCode;

/// A plan consists of millions of small values that are freed on another core than they were allocated on.
/// glibc's allocator needs a third of its time for that (`cargo bench --bench kubernetes`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything opens a connection: two providers, or none, would panic at the first use of TLS.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider was installed before");
    }
    konverge_base::process::forbid_core_dumps();
    cli::main(std::env::args_os())
}
