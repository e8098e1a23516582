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
mod compare;
mod data;
mod error;
mod facts;
mod form;
mod graph;
mod halves;
mod index;
mod index_file;
mod inputs;
mod kept;
mod kept_forms;
mod literals;
mod members;
mod merkle;
mod picture;
mod reasons;
mod resolve;
mod rules;
mod scan;

pub use analysis::Analysis;
pub use cache_file::{kept_files, prune_kept_files};
pub use closure::{Closure, ClosureFile};
pub use error::AffectedError;
pub use facts::{Door, Facts, Reads};
pub use halves::HalfPackage;
pub use index::Index;
pub use kept::Kept;
pub use members::{Member, members};
pub use picture::{NodeKind, Picture, PictureEdge, PictureNode};
pub use rules::CoreRules;
pub use scan::{Import, scan};
