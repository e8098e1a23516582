//! The Spec: reading every shape that was ever written, references between resources, and the graph of who comes first.

pub mod graph;
mod needs;
pub mod references;
