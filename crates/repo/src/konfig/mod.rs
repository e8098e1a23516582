//! The layout of the monorepo: its projects and stacks, their folders, and the compiler setup of each stack.
//! Only the files of one revision are read. An invalid file affects only its own stack.
//!
//! The entry point is [`Layout::read`]; [`FileTreeView`] presents the files of a revision as a checkout
//! would.

mod compile_setup;
mod declared_dependency;
mod dependencies;
mod discovery;
mod entry;
mod error;
mod exclusion;
mod file_changes;
mod file_tree;
mod identities;
mod kcl_mod;
mod layout;
mod manifests;
mod outside_paths;
mod package_stacks;
mod parsed_files;
mod path_variables;
mod resolved_files;
mod selector;
mod settings;
mod setup_failure;
mod unchanged_layout;

pub use declared_dependency::{DeclaredDependency, DependencySource, KclModError, declared_dependencies};
pub use dependencies::{PathPackage, path_packages};
pub use discovery::LayoutReader;
pub use error::LayoutError;
pub use exclusion::PackageKind;
pub use file_changes::Changes;
pub use file_tree::{FileTreeView, Resolved};
pub use layout::{Clash, EarlierNames, Layout, Project};
pub use resolved_files::{ResolvedFile, ResolvedFiles};
pub use selector::{InvalidSelector, StackSelector};
pub use settings::{LayoutRules, Settings, SettingsOrder};
pub use setup_failure::SetupFailure;

/// Parses a glob whose `*` does not match a slash, as for `match` in konverge.yaml; `**` does.
fn path_glob(text: &str) -> Result<globset::Glob, globset::Error> {
    globset::GlobBuilder::new(text).literal_separator(true).build()
}
