//! Which stacks a change touches, and why: from two revisions, without a checkout and without compiling.
//!
//! Every stack has an input digest: a Merkle hash over all that its compilation may read. A stack is affected if its
//! digests differ. The way there: [`scan`] finds a file's imports, [`Index`] remembers them by content,
//! [`Analysis`] resolves them to packages and files with KCL's own rules, and [`compare`](Analysis::compare) explains
//! each difference by the shortest chain from the changed file to the stack. A second revision is reached from the
//! first by what differs ([`Analysis::after`]), and the first from what an earlier run left ([`Kept`]).

mod analysis;
mod cache_file;
mod closure;
mod diff;
mod data_files;
mod error;
mod file_scan;
mod codec;
mod graph;
mod mixed_imports;
mod scan_cache;
mod scan_cache_file;
mod stack_inputs;
mod snapshot;
mod snapshot_codec;
mod runtime_reads;
mod member_access;
mod merkle;
mod graph_export;
mod explain;
mod resolve;
mod core_compat;
mod import_scanner;

pub use analysis::Analysis;
pub use cache_file::{kept_files, prune_kept_files};
pub use closure::{Closure, ClosureFile};
pub use error::AffectedError;
pub use file_scan::{Door, Facts, Reads};
pub use mixed_imports::HalfPackage;
pub use scan_cache::Index;
pub use snapshot::Kept;
pub use member_access::{Member, members};
pub use graph_export::{NodeKind, Picture, PictureEdge, PictureNode};
pub use core_compat::CoreRules;
pub use import_scanner::{Import, scan};
