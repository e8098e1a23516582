//! The Spec: reading every shape that was ever written, references between resources, and the graph of who comes first.

mod crds;
mod error;
pub mod graph;
mod marks;
mod needs;
mod read;
pub mod references;
pub mod schema;
mod secrets;

pub use crds::{append_crds, is_crd_file};
pub use error::SpecError;
pub use read::{read, read_text};
