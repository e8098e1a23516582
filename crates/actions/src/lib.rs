//! The jobs of GitHub Actions, and of Gitea's Actions, which speak almost the same: variables, the file of the event, outputs,
//! workflow commands. [`Dialect`] is the difference. Nothing here sends a request.
//!
//! - [`Runner`]: the run and the event that started it
//! - [`workflow_commands`]: outputs, annotations, and text that the runner must not obey

mod dialect;
mod event;
mod runner;
pub mod workflow_commands;

pub use dialect::{Dialect, gitea_page_number};
pub use runner::{Runner, is_name};
