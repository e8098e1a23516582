//! A language server beside KCL's own: how many stacks an edit of a file affects, what `konverge check` finds, and the
//! Spec and the preview of a stack on demand.
//!
//! This crate speaks the Language Server Protocol over two streams and knows nothing of stacks: it asks an
//! [`EditorWorkspace`]. It never applies anything, and has no completion, formatting or definitions: KCL's server has them.

mod client_support;
mod file_uri;
mod notifications;
mod open_files;
mod rendering;
mod requests;
mod resource_mentions;
mod server;
mod text_position;
mod workspace;

pub use server::{LspError, SessionEnd, serve};
pub use workspace::{EditorView, EditorWorkspace, FileImpact, ResourceView, ShownText};
