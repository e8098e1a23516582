//! Compiling KCL with the official core, unchanged and out of process.
//!
//! [`Core`] is an installed compiler of one version, [`install`] puts it there; a [`Pool`] keeps workers that have it
//! loaded, each behind the walls of [`wall`], and gives them one compile at a time over the frames of [`protocol`].
//! What a compile may read is laid into the worker's scratch folder from bytes that the caller gives: never a
//! checkout, never `.git`.
//!
//! This room knows KCL; it does not know which files a stack needs (`affected/`), what a compiled value means
//! (`spec/`), or who asked.

mod cache;
mod compile;
mod toolchain;
mod diagnostic;
mod error;
mod install;
mod packages;
mod pool;
pub mod protocol;
mod workdir;
mod seccomp;
mod fmt_lint_test;
pub mod sandbox;
mod worker;

pub use self::{
    cache::{Cache, CacheAccess, CacheUse, SharedCache, cache_use, prune_cache},
    compile::{CompileRequest, Compiled},
    toolchain::{Core, DEFAULT_VERSION, OLDEST_VERSION, data_folder},
    diagnostic::Diagnostic,
    error::KclError,
    install::{InstallOptions, InstallStep, install, versions},
    packages::{Asker, Bounds, KnownPackages, Packages, clear_packages, packages_use},
    pool::{Pool, PoolOptions},
    fmt_lint_test::TestCase,
    sandbox::SandboxMode,
};
