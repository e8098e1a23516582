//! What a run is about: the stacks that were named, all of them, or the affected ones; removed stacks included.

use crate::model::{RepoPath, StackId, stack::Stack};

/// Which stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// Those that the change affects.
    #[default]
    Affected,
    /// Every one.
    All,
    /// These, by folder or identity.
    Named(Vec<String>),
}

/// One stack of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its identity.
    pub id: StackId,
    /// Its folder at head; at base, or as the state knows it, if it was removed.
    pub folder: RepoPath,
    /// The stack at head; `None` if it was removed.
    pub head: Option<Stack>,
    /// The stack at base, if it was there.
    pub base: Option<Stack>,
}

impl Target {
    /// A stack that is there at head.
    pub fn new(head: &Stack, base: Option<&Stack>) -> Self {
        Self {
            id: head.id.clone(),
            folder: head.folder.clone(),
            head: Some(head.clone()),
            base: base.cloned(),
        }
    }

    /// A stack that only the base knows.
    pub fn removed(base: &Stack) -> Self {
        Self {
            id: base.id.clone(),
            folder: base.folder.clone(),
            head: None,
            base: Some(base.clone()),
        }
    }

    /// A stack that only the state knows.
    pub fn forgotten(id: StackId, folder: RepoPath) -> Self {
        Self {
            id,
            folder,
            head: None,
            base: None,
        }
    }

    /// The same stack, with nothing of it wanted any more.
    #[must_use]
    pub fn destroyed(&self) -> Self {
        Self {
            base: self.rules().cloned(),
            head: None,
            ..self.clone()
        }
    }

    /// The stack by whose rules it is handled: head's, else base's.
    pub fn rules(&self) -> Option<&Stack> {
        self.head.as_ref().or(self.base.as_ref())
    }
}
