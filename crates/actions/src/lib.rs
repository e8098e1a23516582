//! Jobs of GitHub Actions and of Gitea Actions, which are almost compatible: variables, the payload of the event,
//! outputs, workflow commands. [`Dialect`] describes the differences. Nothing here sends a request.
//!
//! - [`Runner`]: the run, and the event that started it
//! - [`workflow_commands`]: outputs, annotations, and escaping of text that the runner must not interpret

mod dialect;
mod event;
mod runner;
pub mod workflow_commands;

pub use dialect::{Dialect, gitea_page_number};
pub use runner::{Runner, is_name};
