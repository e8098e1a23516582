//! The Spec: parsing all historical formats, references between resources, and the dependency graph.

mod crds;
mod error;
pub mod graph;
pub mod hooks;
mod implicit_deps;
mod instances;
mod parse;
mod reserved_markers;
pub mod schema;

pub use crds::{append_crds, is_crd_file};
pub use error::SpecError;
pub use parse::{read, read_text};
