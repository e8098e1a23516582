//! The use cases, one file each: what happens between the rooms. The only place that sees all of them.
//!
//! [`Run`] is what every use case is given; [`Workspace`] is a revision of the monorepo, opened.

pub mod build;
pub mod clusters;
pub mod init;
pub mod order;
mod run;

mod workspace;

pub use run::{Notes, Run};
pub use workspace::{At, Workspace, repository_root};
