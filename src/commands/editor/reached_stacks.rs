//! The stacks that an edit of a file reaches: how many, which of them are in production, which are the nearest.

use konverge_base::model::{
    RepoPath,
    affected::{Affected, AffectedStack, InputKind, InputReason},
    stack::Stack,
};
use konverge_lsp::FileImpact;
use konverge_run::OpenRevision;

/// The maximum number of stacks that are checked and shown for a file.
const NEAREST: usize = 16;

/// The stacks that an edit of a file reaches.
pub(super) struct ReachedStacks {
    /// All stacks, with the chains from the file to each.
    pub(super) affected: Affected,
    /// The stack of the file itself, then those with the shortest chains.
    pub(super) nearest: Vec<Stack>,
    production: usize,
}

impl ReachedStacks {
    pub(super) fn new(head: &OpenRevision, file: &RepoPath, mut affected: Affected) -> Self {
        // A stack whose files cannot be resolved counts as affected by every file. Here it counts only if this file is
        // the reason.
        let is_reason = |reason: &InputReason| reason.path == *file || reason.kind != InputKind::Unresolved;
        affected.stacks.retain(|stack| stack.why.iter().any(is_reason));
        let (layout, production) = (&head.layout, head.config.production_folders());
        let own = layout.stacks.iter().filter(|stack| file.is_within(&stack.folder));
        let own = own.max_by_key(|stack| stack.folder.as_str().len());
        let mut by_distance: Vec<_> = affected.stacks.iter().collect();
        by_distance.sort_by_key(|stack| (distance(stack), &stack.stack));
        let others = by_distance
            .iter()
            .filter_map(|stack| layout.stack_near(&stack.stack, &stack.id));
        let others = others.filter(|stack| own.is_none_or(|own| own.folder != stack.folder));
        let nearest = own.into_iter().chain(others).take(NEAREST).cloned().collect();
        let stacks = by_distance
            .iter()
            .filter_map(|stack| layout.stack_near(&stack.stack, &stack.id));
        let production = stacks.filter(|stack| production.contains(&stack.folder));
        Self {
            production: production.count(),
            nearest,
            affected,
        }
    }

    pub(super) fn impact(&self) -> FileImpact {
        FileImpact {
            stacks: self.affected.stacks.len(),
            production: self.production,
            checked: self.nearest.len(),
        }
    }

    /// Returns a note if not all stacks are shown; `None` if they are.
    pub(super) fn cut_note(&self) -> Option<String> {
        let (shown, all) = (self.nearest.len(), self.affected.stacks.len());
        (shown < all).then(|| format!("These are the nearest {shown} of {all} stacks."))
    }
}

fn distance(stack: &AffectedStack) -> usize {
    let chains = stack.why.iter().map(|reason| reason.chain.len());
    chains.min().unwrap_or(usize::MAX)
}
