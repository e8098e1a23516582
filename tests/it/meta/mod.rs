//! Checks of the project itself: docs, allowed module imports, release, test toolchain.

pub mod decisions;
pub mod docs;
pub mod forges;
pub mod import_graph;
pub mod messages;
pub mod optional_toolchain;
pub mod paths;
pub mod release;
pub mod rooms;
pub mod sentences;
pub mod site;
pub mod toolchain;
pub mod type_names;
pub mod words;
