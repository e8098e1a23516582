//! Determines the stacks that a change affects, and why, by comparing two revisions: without a checkout and without
//! compiling.
//!
//! Every stack has an input digest: a Merkle hash over everything that its compilation may read. A stack is
//! affected if its digests differ. [`scan`] finds the imports of a file, [`ScanCache`] caches them by
//! content, [`Analysis`] resolves them to packages and files with KCL's own rules, and
//! [`compare`](Analysis::compare) explains each difference by the shortest chain from the changed file to the
//! stack. The second revision is derived from the first by their differences ([`Analysis::after`]), and the first
//! from the cache of an earlier run ([`Snapshot`]).

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod cache_file;
mod closure;
#[cfg(test)]
mod compare_tests;
mod core_compat;
mod data_files;
mod diff;
mod error;
mod explain;
mod file_scan;
#[cfg(test)]
mod fixture;
mod graph;
mod graph_export;
mod import_scanner;
mod member_access;
mod merkle;
mod mixed_imports;
mod option_reads;
mod resolve;
mod runtime_reads;
mod scan_cache;
mod shared_reads;
mod snapshot;
mod stack_inputs;
mod test_files;
mod watched_paths;

pub use analysis::Analysis;
pub use cache_file::{count_cache_files, prune_cache_files};
pub use closure::{Closure, ClosureFile};
pub use core_compat::CoreRules;
pub use error::AffectedError;
pub use file_scan::{FileScan, ReaderImport, RuntimeReads};
pub use graph_export::{ExportEdge, ExportNode, GraphExport, NodeKind};
pub use import_scanner::{Import, scan};
pub use member_access::{MemberAccess, members};
pub use mixed_imports::MixedImport;
pub use option_reads::{OptionRead, option_reads};
pub use scan_cache::ScanCache;
pub use snapshot::{Snapshot, WorkspaceInput};
pub use test_files::find_stack_tests;
