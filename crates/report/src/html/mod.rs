//! One self-contained HTML page with the whole diff of every stack, a search, and the graph. The page loads no script
//! or style from elsewhere, and text from outside is only data.

mod alerts;
pub mod elements;
mod graph;
mod page;
mod stacks;

pub use graph::of_edges;
pub use page::{STYLE, report};
