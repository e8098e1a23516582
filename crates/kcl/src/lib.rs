//! Compiles KCL with the official core, unchanged and out of process.
//!
//! A [`Toolchain`] is an installed core of one version; [`install`] installs it. A [`Pool`] keeps workers that have
//! loaded the core, each in a [`konverge_sandbox`], and sends them one compilation at a time in the frames of
//! [`protocol`]. The files of a compilation are written into the worker's working folder from bytes that the
//! caller passes. No worker reads a checkout or `.git`.
//!
//! This crate knows KCL. It does not know which files a stack needs (`crates/repo/src/affected/`), what a compiled
//! value means (`crates/engine/src/spec/`), or which command requested the compilation.

mod assignment_edit;
mod assignments;
mod attribute_path;
mod cache;
mod compile;
mod core_hints;
mod diagnostic;
mod error;
mod formatting;
mod install;
mod kcl_tests;
mod language_hints;
mod literal;
mod packages;
mod pool;
mod pool_options;
pub mod protocol;
mod toolchain;
mod validate;
mod version;
mod workdir;
mod worker;

pub use self::{
    assignments::{AssignedValue, Assignment, ParsedFile},
    attribute_path::{AttributePath, InvalidAttributePath},
    cache::{Cache, CacheAccess, CacheUse, Kept, SharedCache, cache_use, prune_cache},
    compile::{CompileRequest, Compiled},
    core_hints::CoreRange,
    diagnostic::KclDiagnostic,
    error::{CoreReach, KclError},
    formatting::{FormatFault, FormatVerdict, Formatting},
    install::{InstallOptions, InstallStep, install, versions},
    kcl_tests::{TestCase, TestOutcome},
    literal::literal,
    packages::{
        Bounds, KnownPackages, LockUpdate, PackageFetcher, PackageTrust, PathEntry, ResolvedPackage,
        UnlockedPackage, UnlockedPackages, VerifiedPackages, clear_packages, packages_use, platform,
    },
    pool::Pool,
    toolchain::{Toolchain, data_folder},
    workdir::Workdir,
};
pub use konverge_sandbox::{SUPPORTED as SANDBOX_SUPPORTED, SandboxMode};
pub use pool_options::PoolOptions;
pub use validate::SchemaPlace;
pub use version::{DEFAULT_VERSION, OLDEST_VERSION};
