//! Compiling KCL with the official core, unchanged and out of process.
//!
//! [`Toolchain`] is an installed compiler of one version, [`install`] puts it there; a [`Pool`] keeps workers that have it
//! loaded, each behind the walls of [`wall`], and gives them one compile at a time over the frames of [`protocol`].
//! What a compile may read is laid into the worker's scratch folder from bytes that the caller gives: never a
//! checkout, never `.git`.
//!
//! This room knows KCL; it does not know which files a stack needs (`affected/`), what a compiled value means
//! (`spec/`), or who asked.

mod cache;
mod compile;
mod diagnostic;
mod error;
mod fmt_lint_test;
mod install;
mod packages;
mod pool;
pub mod protocol;
pub mod sandbox;
mod seccomp;
mod toolchain;
mod workdir;
mod worker;

pub use self::{
    cache::{Cache, CacheAccess, CacheUse, SharedCache, cache_use, prune_cache},
    compile::{CompileRequest, Compiled},
    diagnostic::KclDiagnostic,
    error::KclError,
    fmt_lint_test::TestCase,
    install::{InstallOptions, InstallStep, install, versions},
    packages::{Bounds, KnownPackages, PackageFetcher, PackageTrust, clear_packages, packages_use},
    pool::{Pool, PoolOptions},
    sandbox::SandboxMode,
    toolchain::{DEFAULT_VERSION, OLDEST_VERSION, Toolchain, data_folder},
};
