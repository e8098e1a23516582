//! A stack as the monorepo describes it: who it is, where it lies, and what the compiler is to be given.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterName, RepoPath, StackId};

/// Which Kusion's reading of the settings files a repository follows (`kcl.settings` in `konverge.yaml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum SettingsOrder {
    /// v0.7, v0.8: `ci-test/settings.yaml`, then `kcl.yaml`; both must exist.
    #[serde(rename = "v0.7")]
    V07,
    /// v0.9.0: `kcl.yaml`, then `ci-test/settings.yaml` if there is one.
    #[default]
    #[serde(rename = "v0.9.0")]
    V090,
    /// v0.9.1: `kcl.yaml` alone; empty values are always dropped.
    #[serde(rename = "v0.9.1")]
    V091,
}

/// How the layout of a repository is to be read: what its configuration says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutRules {
    /// In which order settings files are read.
    pub order: SettingsOrder,
    /// `exclude`: globs of folders that are not stacks; `!` takes folders in again.
    pub exclude: Vec<String>,
    /// `stacks[].identity` with the glob of its rule; the last rule that matches wins.
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

/// Where the identity of a stack comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedBy {
    /// The names in `project.yaml` and `stack.yaml`.
    #[default]
    Names,
    /// Its folder: other folders have the same names.
    Folder,
    /// `stacks[].identity` of `konverge.yaml`.
    Config,
}

impl NamedBy {
    /// Whether it comes from the names.
    pub fn is_names(&self) -> bool {
        *self == Self::Names
    }
}

/// One stack of one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// Its identity, unique in the revision.
    pub id: StackId,
    /// The identity that its names give. Other stacks may have the same.
    pub names: StackId,
    /// Where its identity comes from.
    pub named_by: NamedBy,
    /// Where it lies.
    pub folder: RepoPath,
    /// Its project's folder.
    pub project_folder: RepoPath,
    /// How it is compiled, or why that cannot be known.
    pub compile: Result<CompileSetup, SetupError>,
    /// The cluster it names itself (`stack.yaml`), a name defined in `konverge.yaml`.
    pub cluster: Option<ClusterName>,
    /// A kubeconfig path of the old kind (Kusion v0.9.1 `stack.yaml`); refused in `ci`.
    pub kubeconfig: Option<String>,
}

impl Stack {
    /// Whether the stack goes on under this identity from another one that was known in the same folder. A name that
    /// was changed in `project.yaml` or `stack.yaml` is another stack.
    pub fn continues(&self, earlier: &StackId, earlier_named_by: NamedBy) -> bool {
        self.id != *earlier
            && (!self.named_by.is_names()
                || !earlier_named_by.is_names()
                || *earlier == StackId::of_folder(&self.folder))
    }
}

/// A stack whose files cannot be resolved: it is affected, says so, and takes no other stack down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    /// The file at fault.
    pub file: RepoPath,
    /// Line from 1, where known.
    pub line: Option<u32>,
    /// Column from 1, where known.
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
}

/// What the KCL core is given: merged from `kcl.yaml`, `ci-test/settings.yaml` and `kcl.mod` by the rules of
/// the Kusion version that the repository follows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CompileSetup {
    /// The folder that relative entries start from.
    pub work_dir: RepoPath,
    /// The package root: nearest folder at or above the stack that holds `kcl.mod`.
    pub module_root: Option<RepoPath>,
    /// Entry files and folders in order.
    pub entries: Vec<Entry>,
    /// `-D key=value`; the value as JSON, so that `"1"` and `1` stay apart.
    pub options: Vec<(String, Value)>,
    /// `-O pkg:path=value`.
    pub overrides: Vec<String>,
    /// `-S`.
    pub path_selector: Vec<String>,
    /// `disable_none`.
    pub disable_none: bool,
    /// `strict_range_check`.
    pub strict_range_check: bool,
    /// External packages: name → folder inside the repository (`package_maps`, `kcl.mod` path dependencies).
    pub packages: Vec<(String, RepoPath)>,
    /// External packages fetched from elsewhere (git, OCI): name → what `kcl.mod` says, with its lock entry.
    pub remote_packages: Vec<RemotePackage>,
    /// The settings files that were read, in order: inputs of the stack.
    pub settings_files: Vec<RepoPath>,
}

/// A file or folder that a compilation starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Where it lies in the repository.
    pub path: RepoPath,
    /// The package that it belongs to.
    pub package: EntryPackage,
}

/// The package of an entry. The core resolves imports of the entry in that package's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EntryPackage {
    /// The main package. Its root is the nearest folder at or above the entry with a `kcl.mod`.
    Main,
    /// The main package, with this root: the entry was written as `${KCL_MOD}/…`.
    Root(RepoPath),
    /// A dependency by its name: the entry was written as `${name:KCL_MOD}/…`.
    Dependency(String),
}

impl Entry {
    /// An entry of the main package.
    pub fn main(path: RepoPath) -> Self {
        Self {
            path,
            package: EntryPackage::Main,
        }
    }
}

/// A dependency of `kcl.mod` that lies outside the repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemotePackage {
    /// The name by which it is imported (`-` written as `_`).
    pub name: String,
    /// The dependency's entry as `kcl.mod` has it, in canonical JSON.
    pub requirement: String,
    /// The lock's checksum, if there is one.
    pub checksum: Option<String>,
}
