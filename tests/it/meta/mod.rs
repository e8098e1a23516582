//! Checks of the project itself: docs, allowed module imports, release, test toolchain.

pub mod bench_figures;
pub mod community;
pub mod docs;
pub mod environment;
pub mod image_build;
pub mod import_graph;
pub mod install;
pub mod jenkins_scripts;
pub mod kinds;
pub mod map_keys;
pub mod messages;
pub mod optional_toolchain;
pub mod own_code;
pub mod parts;
pub mod paths;
pub mod release;
pub mod rooms;
pub mod site;
pub mod slow_tests;
pub mod store_variables;
pub mod toolchain;
