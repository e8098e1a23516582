//! The targets of a run: named, all or affected stacks, including removed ones.

use std::sync::Arc;

use konverge_base::model::{CommitId, Digest, RepoPath, StackFolder, StackId, spec::Spec, stack::Stack};
pub use konverge_repo::konfig::StackSelector;

/// The selected stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// The stacks that a change affects.
    #[default]
    Affected,
    /// Every stack.
    All,
    /// The stacks that these words select.
    Named(Vec<StackSelector>),
}

/// One stack of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Identity of the stack.
    pub id: StackId,
    /// The folder at the head; at the base, or in the state, if the stack was removed. None for a Spec from a file.
    pub stack_folder: StackFolder,
    /// The stack at the head; `None` if it was removed.
    pub head: Option<Stack>,
    /// The stack at the base, if it existed.
    pub base: Option<Stack>,
    /// The Spec that was applied last, if the run uses it in place of the head's.
    pub recorded: Option<Arc<RecordedSpec>>,
}

/// A Spec that was applied last to a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedSpec {
    pub spec: Spec,
    pub input_digest: Digest,
    /// The commit; `None` if it was applied from uncommitted files.
    pub commit: Option<CommitId>,
    /// The version of the core that compiled it.
    pub core: Option<String>,
}

impl Target {
    /// A stack that exists at the head.
    pub fn new(head: &Stack, base: Option<&Stack>) -> Self {
        Self {
            id: head.id.clone(),
            stack_folder: head.folder.clone().into(),
            head: Some(head.clone()),
            base: base.cloned(),
            recorded: None,
        }
    }

    /// A stack that exists only at the base.
    pub fn removed(base: &Stack) -> Self {
        Self {
            id: base.id.clone(),
            stack_folder: base.folder.clone().into(),
            head: None,
            base: Some(base.clone()),
            recorded: None,
        }
    }

    /// A stack that only the state knows.
    pub fn forgotten(id: StackId, folder: impl Into<StackFolder>) -> Self {
        Self {
            id,
            stack_folder: folder.into(),
            head: None,
            base: None,
            recorded: None,
        }
    }

    /// The folder as rules see it.
    pub fn folder(&self) -> &RepoPath {
        self.stack_folder.or_root()
    }

    /// The same stack with no desired resources.
    #[must_use]
    pub fn destroyed(&self) -> Self {
        Self {
            base: self.rules().cloned(),
            head: None,
            ..self.clone()
        }
    }

    /// The stack whose rules apply: the head's, or else the base's.
    pub fn rules(&self) -> Option<&Stack> {
        self.head.as_ref().or(self.base.as_ref())
    }
}
