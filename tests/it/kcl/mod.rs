//! Compiling with the real core.

pub mod compile;
pub mod core_revisions;
pub mod module_packages;
pub mod package_bounds;
pub mod package_locks;
pub mod packages;
pub mod scalars;
pub mod spec_shapes;
