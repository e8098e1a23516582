//! A stack as the monorepo defines it: its identity, its folder and its compiler setup.

use std::str::FromStr;

use crate::error::{ErrorKind, UserError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterName, RepoPath, StackId, package_lock::LockedPackage, stack_output::StackReads};

/// The Kusion version whose rules for settings files apply (`kcl.settings` in `konverge.yaml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum SettingsOrder {
    /// v0.7 and v0.8: `ci-test/settings.yaml`, then `kcl.yaml`. Both must exist.
    #[serde(rename = "v0.7")]
    V07,
    /// v0.9.0: `kcl.yaml`, then `ci-test/settings.yaml` if it exists.
    #[default]
    #[serde(rename = "v0.9.0")]
    V090,
    /// v0.9.1: `kcl.yaml` only. Empty values are always dropped.
    #[serde(rename = "v0.9.1")]
    V091,
}

impl SettingsOrder {
    /// Returns the value of the key in `konverge.yaml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V07 => "v0.7",
            Self::V090 => "v0.9.0",
            Self::V091 => "v0.9.1",
        }
    }
}

/// The configured rules for the layout of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayoutRules {
    /// The order in which settings files are read.
    pub order: SettingsOrder,
    /// `exclude`: globs of folders that are not stacks; `!` includes folders again.
    pub exclude: Vec<String>,
    /// `include`: globs of folders with a `kcl.mod` that are stacks without a `stack.yaml`.
    pub include: Vec<String>,
    /// `stacks[].identity` with the glob of its rule. The last matching rule wins.
    pub identities: Vec<(String, StackId)>,
}

impl From<SettingsOrder> for LayoutRules {
    fn from(order: SettingsOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }
}

/// The source of a stack's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedBy {
    /// The names in `project.yaml` and `stack.yaml`.
    #[default]
    Names,
    /// The folder of the stack, because several stacks have the same names.
    Folder,
    /// `stacks[].identity` in `konverge.yaml`.
    Config,
}

impl NamedBy {
    /// Returns true if the identity comes from the names.
    pub fn is_names(&self) -> bool {
        *self == Self::Names
    }
}

/// One stack of one revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// The identity, unique in the revision.
    pub id: StackId,
    /// The identity from the names in `project.yaml` and `stack.yaml`. Other stacks may have the same.
    pub names: StackId,
    /// The identity that earlier versions of Konverge read from the names, if it differs: they read `no` as `false` and
    /// `1.10` as `1.1`.
    pub earlier_names: Option<StackId>,
    /// The source of the identity.
    pub named_by: NamedBy,
    /// Folder of the stack.
    pub folder: RepoPath,
    /// Folder of the project of the stack.
    pub project_folder: RepoPath,
    /// The file that makes the folder a stack: its `stack.yaml`, or its `kcl.mod` (`include` in `konverge.yaml`).
    pub manifest: RepoPath,
    /// The compiler setup, or the error if the files of the stack cannot be resolved.
    pub compile: Result<CompileSetup, SetupError>,
    /// The cluster that `stack.yaml` names, as defined in `konverge.yaml`.
    pub cluster: Option<ClusterName>,
    /// A kubeconfig path as in Kusion v0.9.1's `stack.yaml`. Not allowed in `ci`.
    pub kubeconfig: Option<String>,
    /// The stacks whose outputs this stack reads, by alias.
    pub reads: StackReads,
}

impl Stack {
    /// Creates a stack whose identity is that of its names, in a folder that is also the folder of its project.
    pub fn new(id: StackId, folder: RepoPath) -> Self {
        Self {
            names: id.clone(),
            id,
            earlier_names: None,
            named_by: NamedBy::Names,
            project_folder: folder.clone(),
            manifest: folder.child("stack.yaml"),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
            reads: StackReads::new(),
        }
    }

    /// Returns true if the stack continues an earlier identity of the same folder. A new name in
    /// `project.yaml` or `stack.yaml` makes another stack, except where only the reading of the name changed.
    pub fn continues(&self, earlier: &StackId, earlier_named_by: NamedBy) -> bool {
        self.id != *earlier
            && (!self.named_by.is_names()
                || !earlier_named_by.is_names()
                || *earlier == StackId::of_folder(&self.folder)
                || self.earlier_names.as_ref() == Some(earlier))
    }
}

/// The error for a stack whose files cannot be resolved. The stack counts as affected and reports the error;
/// other stacks are not concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    /// The file with the error.
    pub file: RepoPath,
    /// The line, from 1, if known.
    pub line: Option<u32>,
    /// The column, from 1, if known.
    pub column: Option<u32>,
    /// The problem, and the next step.
    pub message: String,
}

impl SetupError {
    /// Creates an error that concerns a file as a whole.
    pub fn new(file: RepoPath, message: impl Into<String>) -> Self {
        Self {
            file,
            line: None,
            column: None,
            message: message.into(),
        }
    }
}

/// The input of the KCL core: merged from `kcl.yaml`, `ci-test/settings.yaml` and `kcl.mod` by the rules of
/// the repository's Kusion version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CompileSetup {
    /// The base folder of relative entries.
    pub work_dir: RepoPath,
    /// The package root: the nearest folder at or above the stack with a `kcl.mod`.
    pub module_root: Option<RepoPath>,
    /// The entry files and folders, in order.
    pub entries: Vec<Entry>,
    /// The options (`-D key=value`). The values are JSON, so that `"1"` and `1` stay different.
    #[serde(with = "options_as_text")]
    pub options: Vec<(String, Value)>,
    /// The overrides (`-O pkg:path=value`).
    pub overrides: Vec<String>,
    /// The path selectors (`-S`).
    pub path_selector: Vec<String>,
    /// True to omit attributes that are `None` (`disable_none`).
    pub disable_none: bool,
    /// True to check the ranges of 32-bit integers and floats (`strict_range_check`).
    pub strict_range_check: bool,
    /// The external packages inside the repository: name → folder (`package_maps`, `kcl.mod` path dependencies).
    pub packages: Vec<(String, RepoPath)>,
    /// The external packages from elsewhere (git, OCI): the entry in `kcl.mod`, with its lock entry.
    pub remote_packages: Vec<RemotePackage>,
    /// The settings files that were read, in order. They are inputs of the stack.
    pub settings_files: Vec<RepoPath>,
}

/// Keeps options as JSON texts, because a binary format cannot tell the type of a value.
mod options_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(options: &[(String, Value)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(options.iter().map(|(key, value)| (key, value.to_string())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Value)>, D::Error> {
        let option = |(key, text): (String, String)| Ok((key, serde_json::from_str(&text)?));
        let options = Vec::deserialize(from)?.into_iter().map(option);
        options
            .collect::<serde_json::Result<_>>()
            .map_err(D::Error::custom)
    }
}

/// A file or folder where a compilation starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The file or folder that the entry names.
    pub path: RepoPath,
    /// The package that the entry belongs to.
    pub package: EntryPackage,
}

/// The package of an entry. The core resolves the imports of the entry in the folder of that package.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EntryPackage {
    /// The main package. Its root is the nearest folder at or above the entry with a `kcl.mod`.
    Main,
    /// The main package with this root: the entry was written as `${KCL_MOD}/…`.
    Root(RepoPath),
    /// A dependency, by name: the entry was written as `${name:KCL_MOD}/…`.
    Dependency(String),
}

impl Entry {
    /// Creates an entry of the main package.
    pub fn main(path: RepoPath) -> Self {
        Self {
            path,
            package: EntryPackage::Main,
        }
    }
}

/// The instructions to get the command that fetches, locks and vendors packages. Every message that names the command
/// includes them.
pub const GET_KCL: &str = "to get KCL's command line `kcl`: `brew install kcl-lang/tap/kcl`, or \
    `go install kcl-lang.io/cli/cmd/kcl@latest`, or https://www.kcl-lang.io/docs/user_docs/getting-started/install";

/// A dependency in `kcl.mod` from outside the repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemotePackage {
    /// The name used to import it (`-` becomes `_`).
    pub name: String,
    /// The name in `kcl.mod`.
    pub declared: String,
    /// The entry in `kcl.mod`, as canonical JSON.
    pub requirement: String,
    /// The lock entry of the dependency; empty if there is none.
    pub locked: LockedPackage,
}

impl SettingsOrder {
    /// Returns the settings files in order, relative to the stack's folder, and whether each must exist.
    pub fn files(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::V07 => &[("ci-test/settings.yaml", true), ("kcl.yaml", true)],
            Self::V090 => &[("kcl.yaml", false), ("ci-test/settings.yaml", false)],
            Self::V091 => &[("kcl.yaml", false)],
        }
    }
}

impl FromStr for SettingsOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v0.7" => Ok(Self::V07),
            "v0.9.0" => Ok(Self::V090),
            "v0.9.1" => Ok(Self::V091),
            _ => Err("one of v0.7, v0.9.0, v0.9.1".to_owned()),
        }
    }
}

impl From<SetupError> for UserError {
    fn from(error: SetupError) -> Self {
        UserError::new(ErrorKind::Layout, error.message).at(error.file.to_string(), error.line, error.column)
    }
}
