//! The monorepo's layout: which projects and stacks there are, where they lie, and what each stack's compilation is
//! given. Reads files of one revision; a broken file breaks its own stack and no other.
//!
//! [`Layout::read`] is the door; [`Tree`] looks at a revision's files as a checkout would show them.

mod changes;
mod dependencies;
mod manifests;
mod entry;
mod error;
mod exclusion;
mod identities;
mod layout;
mod kcl_mod;
mod outside_paths;
mod discovery;
mod settings;
mod compile_setup;
mod resolved_files;
mod file_tree;

pub use changes::Changes;
pub use error::LayoutError;
pub use exclusion::PackageKind;
pub use identities::Clash;
pub use layout::{Layout, Project};
pub use discovery::Reader;
pub use settings::{LayoutRules, Settings, SettingsOrder};
pub use resolved_files::{Shown, ShownFile};
pub use file_tree::{Resolved, Tree};
