//! The monorepo's layout: which projects and stacks there are, where they lie, and what each stack's compilation is
//! given. Reads files of one revision; a broken file breaks its own stack and no other.
//!
//! [`Layout::read`] is the door; [`FileTreeView`] looks at a revision's files as a checkout would show them.

mod changes;
mod compile_setup;
mod dependencies;
mod discovery;
mod entry;
mod error;
mod exclusion;
mod file_tree;
mod identities;
mod kcl_mod;
mod layout;
mod manifests;
mod outside_paths;
mod resolved_files;
mod settings;

pub use changes::Changes;
pub use discovery::LayoutReader;
pub use error::LayoutError;
pub use exclusion::PackageKind;
pub use file_tree::{FileTreeView, Resolved};
pub use identities::Clash;
pub use layout::{Layout, Project};
pub use resolved_files::{ResolvedFile, ResolvedFiles};
pub use settings::{LayoutRules, Settings, SettingsOrder};
