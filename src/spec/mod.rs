//! The Spec: reading every shape that was ever written, references between resources, and the graph of who comes first.

mod crds;
mod error;
pub mod graph;
mod implicit_deps;
mod parse;
mod reserved_markers;
pub mod resolve;
pub mod schema;
mod secret_refs;

pub use crds::{append_crds, is_crd_file};
pub use error::SpecError;
pub use parse::{read, read_text};
