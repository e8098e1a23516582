//! The output of `konverge affected`.

use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::{CommitId, RepoPath, StackId};

/// The stacks that a change affects. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affected {
    /// Version of this format.
    pub version: u32,
    /// The commit compared against.
    pub base: Option<CommitId>,
    /// The commit with the change; `None` with `--worktree`.
    pub head: Option<CommitId>,
    /// The affected stacks, sorted by folder.
    pub stacks: Vec<AffectedStack>,
}

impl Affected {
    /// Creates the result without affected stacks, because nothing is compared.
    pub fn nothing(head: Option<CommitId>) -> Self {
        Self {
            version: 1,
            base: None,
            head,
            stacks: Vec::new(),
        }
    }
}

/// A stack that a change affects, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedStack {
    /// The folder of the stack at the head; at the base if the stack was removed.
    pub stack: RepoPath,
    /// The identity of the stack.
    pub id: StackId,
    /// The name of the stack's project.
    pub project: String,
    /// Name of the stack within its project.
    pub name: String,
    /// The change of the stack's inputs.
    pub change: InputChange,
    /// The change of the stack's compiled Spec.
    pub spec: SpecChange,
    /// The reasons: one entry per changed input, each with its shortest chain; sorted.
    pub why: Vec<InputReason>,
}

/// The change of a stack's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputChange {
    /// The stack exists only at the head.
    Added,
    /// The stack exists only at the base.
    Removed,
    /// The input digest, the folder or a stack test differs.
    Modified,
}

/// The change of a compiled Spec. Known only with `--exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpecChange {
    /// The Specs differ. Added and removed stacks count as changed.
    Changed,
    /// The Specs are equal, apart from the order of resources.
    Same,
    /// The stack does not compile at the base or at the head.
    Error,
    /// `--exact` was not given.
    NotCompiled,
}

/// One changed input, and the chain of files through which it affects the stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputReason {
    /// The input that differs.
    pub path: RepoPath,
    /// The class of input.
    pub kind: InputKind,
    /// The files from the changed one to the stack, both included.
    pub chain: Vec<RepoPath>,
}

/// The classes of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[display(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// A `.k` file reached by imports.
    Import,
    /// A file that the compilation starts with.
    Entry,
    /// A settings file: `kcl.yaml` or `ci-test/settings.yaml`.
    Settings,
    /// The value of an option, or an override.
    Options,
    /// The file `project.yaml`.
    Project,
    /// The file `stack.yaml`.
    Stack,
    /// The file `kcl.mod` or `kcl.mod.lock`.
    Module,
    /// A file that KCL code may read while it is evaluated.
    Data,
    /// A file in `<project>/crd/`.
    Crd,
    /// The settings of `konverge.yaml` that concern the stack.
    Config,
    /// The version of the KCL core.
    Compiler,
    /// The stack moved to another folder and kept its identity.
    Moved,
    /// The stack's files cannot be resolved.
    Unresolved,
    /// The part of a workspace that concerns the stack.
    Workspace,
    /// A stack test, `<stack>/test/**/*.test.yaml`. It changes no Spec.
    Test,
    /// An output of another stack that the change affects (`reads` in `stack.yaml`).
    Output,
}
