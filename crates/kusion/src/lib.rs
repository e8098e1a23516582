//! Applications of Kusion 0.12 and later: turns the AppConfigurations of a stack, the workspace of its
//! platform team and the modules that it uses into a Spec.
//!
//! [`AppConfigurations`] recognizes applications in KCL's output. [`Workspace`] reads a workspace file, and
//! [`Workspace::platform`] returns the part of it that concerns one stack. [`generate`] makes the Spec from
//! both, always in the same order, so that the same input gives the same bytes. Input that Kusion would drop
//! silently gives an error or a note.
//!
//! A module that is not built in runs outside this crate: [`foreign_calls`] returns the requests to it, and
//! [`generate`] takes the responses.
//!
//! The functions here are pure: they read no file and start no process.

mod app_stack;
mod apps;
mod context_keys;
mod error;
mod generate;
mod import;
mod json_patch;
mod kubernetes_object;
mod kubernetes_order;
mod module_call;
pub mod module_host;
mod module_source;
mod native;
mod patch;
mod patch_environment;
mod platform;
mod project_files;
#[cfg(test)]
mod tests;
mod workload_secrets;
mod workspace;

pub use app_stack::AppStack;
pub use apps::{AppConfigurations, defines_apps, may_hold_apps, untyped_app};
pub use error::KusionError;
pub use generate::{Generated, generate};
pub use import::{ImportedText, import_text};
pub use module_call::{AnswerSummary, AppPart, ForeignAnswer, ForeignAnswers, ForeignCall, foreign_calls};
pub use module_source::platform_names;
pub use platform::{Platform, PlatformModule};
pub use project_files::{ExtensionFile, ProjectExtensions, project_extensions};
pub use workspace::{FOLDER, Workspace, workspace_file};
