//! One self-contained HTML page: the whole diff of every stack, searchable, with the graph. It loads no
//! script or style from elsewhere; text from others is data only.

mod alerts;
pub mod elements;
mod graph;
mod page;
mod stacks;

pub use graph::of_edges;
pub use page::{STYLE, report};
