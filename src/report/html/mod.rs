//! One self-contained page: every stack's whole diff, searchable, with the graph drawn. No script or style from
//! elsewhere; foreign text stands in it as data only.

mod graph;
mod page;

pub use page::report;
