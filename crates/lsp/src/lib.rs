//! A language server that complements KCL's own: it shows how many stacks an edit of a file affects, the findings
//! of `konverge check`, and on request the Spec and the preview of a stack.
//!
//! This crate implements the Language Server Protocol over two streams, and delegates everything about stacks to an
//! [`EditorWorkspace`]. It never applies anything. KCL's server provides completion, formatting and definitions.

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
