//! The targets of a run: named, all or affected stacks. Removed stacks are included.

use std::sync::Arc;

use konverge_base::model::{
    CommitId, Digest, RepoPath, StackFolder, StackId, spec::Spec, stack::Stack, state::StackState,
};
pub use konverge_repo::konfig::StackSelector;

/// The stacks that a run has as targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// The stacks that a change affects.
    #[default]
    Affected,
    /// Every stack.
    All,
    /// The stacks that match these selectors.
    Named(Vec<StackSelector>),
}

/// A stack that a run previews or applies.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The identity of the stack.
    pub id: StackId,
    /// The folder at the head. For a removed stack, its folder at the base or in the state. None for a Spec from a
    /// file.
    pub stack_folder: StackFolder,
    /// The stack at the head; `None` if it was removed.
    pub head: Option<Stack>,
    /// The stack at the base, if it existed.
    pub base: Option<Stack>,
    /// The Spec that was applied last, if the run uses it instead of the head's Spec.
    pub recorded: Option<Arc<RecordedSpec>>,
}

/// The Spec of the last apply of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedSpec {
    pub spec: Spec,
    pub input_digest: Digest,
    /// The commit of the Spec; `None` if it was applied from files that are in no commit.
    pub commit: Option<CommitId>,
    /// The version of the KCL core that compiled the Spec.
    pub core: Option<String>,
}

impl Target {
    /// Creates the target of a stack that exists at the head.
    pub fn new(head: &Stack, base: Option<&Stack>) -> Self {
        Self {
            head: Some(head.clone()),
            base: base.cloned(),
            ..Self::forgotten(head.id.clone(), head.folder.clone())
        }
    }

    /// Creates the target of a stack that exists only at the base.
    pub fn removed(base: &Stack) -> Self {
        Self {
            base: Some(base.clone()),
            ..Self::forgotten(base.id.clone(), base.folder.clone())
        }
    }

    /// Creates the target of a stack that only the state has.
    pub fn forgotten(id: StackId, folder: impl Into<StackFolder>) -> Self {
        Self {
            id,
            stack_folder: folder.into(),
            head: None,
            base: None,
            recorded: None,
        }
    }

    /// Returns the state of the stack before its first apply.
    pub fn empty_state(&self) -> StackState {
        StackState::empty(self.id.clone(), self.stack_folder.clone())
    }

    /// Returns the folder that rules are matched with.
    pub fn folder(&self) -> &RepoPath {
        self.stack_folder.or_root()
    }

    /// Returns the target of the same stack without desired resources, so that it is destroyed.
    #[must_use]
    pub fn destroyed(&self) -> Self {
        Self {
            base: self.rules().cloned(),
            head: None,
            ..self.clone()
        }
    }

    /// Returns the stack whose rules apply: that of the head, or else that of the base.
    pub fn rules(&self) -> Option<&Stack> {
        self.head.as_ref().or(self.base.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, stack};

    /// The rules of the folder must hold for the removal, too.
    #[test]
    fn a_destroyed_stack_keeps_the_rules_that_it_had() {
        let (head, base) = (stack("shop/prod"), stack("shop/old"));
        let both = Target::new(&head, Some(&base));
        assert_eq!(both.rules(), Some(&head));
        let destroyed = both.destroyed();
        assert_eq!((&destroyed.head, destroyed.rules()), (&None, Some(&head)));
        assert_eq!((&destroyed.id, destroyed.folder()), (&head.id, &head.folder));
        let removed = Target::removed(&base).destroyed();
        assert_eq!(removed.rules(), Some(&base));
        let forgotten = Target::forgotten(id("shop/gone"), StackFolder::none());
        assert_eq!((forgotten.rules(), forgotten.folder()), (None, &RepoPath::root()));
    }
}
