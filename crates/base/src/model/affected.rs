//! The answer of `konverge affected`.

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
    /// Sorted by folder.
    pub stacks: Vec<AffectedStack>,
}

/// A stack that a change affects, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedStack {
    /// The folder at the head; at the base if the stack was removed.
    pub stack: RepoPath,
    /// Its identity.
    pub id: StackId,
    /// Name of its project.
    pub project: String,
    /// Name of the stack within its project.
    pub name: String,
    /// How its inputs changed.
    pub change: InputChange,
    /// The change of its compiled Spec.
    pub spec: SpecChange,
    /// One entry per changed input, each with its shortest chain; sorted.
    pub why: Vec<InputReason>,
}

/// How a stack's inputs changed.
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
    /// The Specs are equal, the order of resources aside.
    Same,
    /// One side could not be compiled.
    Error,
    /// `--exact` was not given.
    NotCompiled,
}

/// One changed input and how it reaches the stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputReason {
    /// The input that differs.
    pub path: RepoPath,
    /// The class of input.
    pub kind: InputKind,
    /// From the changed file to the stack, both ends included.
    pub chain: Vec<RepoPath>,
}

/// The classes of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// A `.k` file reached by imports.
    Import,
    /// A file that the compilation starts with.
    Entry,
    /// `kcl.yaml`, `ci-test/settings.yaml`.
    Settings,
    /// An option's value or an override.
    Options,
    /// `project.yaml`.
    Project,
    /// `stack.yaml`.
    Stack,
    /// `kcl.mod`, `kcl.mod.lock`.
    Module,
    /// A file that may be read at run time.
    Data,
    /// `<project>/crd/**`.
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
