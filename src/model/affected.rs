//! The answer of `konverge affected`, in the shape of contracts.

use serde::{Deserialize, Serialize};

use super::{CommitId, RepoPath, StackId};

/// The stacks that a change touches; `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affected {
    /// Always 1.
    pub version: u32,
    /// The commit compared against.
    pub base: Option<CommitId>,
    /// The commit that holds the change; `None` with `--worktree`.
    pub head: Option<CommitId>,
    /// Sorted by folder.
    pub stacks: Vec<AffectedStack>,
}

/// One affected stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedStack {
    /// Its folder (at head; at base if removed).
    pub stack: RepoPath,
    /// Its identity.
    pub id: StackId,
    /// Its project's name.
    pub project: String,
    /// Its own name.
    pub name: String,
    /// How its inputs changed.
    pub change: InputChange,
    /// Whether its compiled Spec changed.
    pub spec: SpecChange,
    /// Why: one entry per changed input, the shortest chain of each, sorted.
    pub why: Vec<InputReason>,
}

/// How a stack's inputs changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputChange {
    /// Known only at head.
    Added,
    /// Known only at base.
    Removed,
    /// Another digest, or another folder.
    Modified,
}

/// Whether the compiled Spec changed (`--exact`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpecChange {
    /// Another Spec; added and removed stacks count as changed.
    Changed,
    /// The same Spec by meaning.
    Same,
    /// One side could not be compiled.
    Error,
    /// Not asked for.
    NotCompiled,
}

/// One changed input and how it reaches the stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputReason {
    /// The changed file.
    pub path: RepoPath,
    /// What it is to the stack.
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
    /// An entry file.
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
    /// `konverge.yaml` where it bears on the stack.
    Config,
    /// The compiler's version.
    Compiler,
    /// The same identity in another folder.
    Moved,
    /// Its files cannot be resolved.
    Unresolved,
}
