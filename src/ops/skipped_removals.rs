//! Removed stacks that an apply skips: a part of the repository is not readable, so they may still exist.

use super::{Planner, SpecSource, Target, apply};
use crate::{
    error::{ErrorKind, UserError},
    konfig::Layout,
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
    },
};

/// Removed stacks that an apply leaves alone.
pub struct SkippedRemovals {
    targets: Vec<Target>,
    /// Why they are left alone.
    pub reason: UserError,
}

impl SkippedRemovals {
    /// Takes the removed stacks out of the targets of an apply, if one of them may be there.
    pub fn take(layout: &Layout, targets: &mut Vec<Target>) -> Option<Self> {
        let reason = reason(layout)?;
        let (removed, there) = targets.drain(..).partition(|target| target.head.is_none());
        *targets = there;
        Some(Self {
            targets: removed,
            reason,
        })
    }

    /// As [`SkippedRemovals::take`], of what is planned; where nothing is compiled nothing is taken for removed.
    pub fn take_planned(planning: &Planner, targets: &mut Vec<Target>) -> Option<Self> {
        match &planning.wanted {
            SpecSource::Compiled { head, .. } => Self::take(&head.layout, targets),
            SpecSource::File(_) => None,
        }
    }

    /// As [`SkippedRemovals::take`], for a preview: the stacks are still planned.
    pub fn among(planning: &Planner, targets: &[Target]) -> Option<Self> {
        let skipped = Self::take_planned(planning, &mut targets.to_vec())?;
        (!skipped.targets.is_empty()).then_some(skipped)
    }

    /// The stacks.
    pub fn stacks(&self) -> impl Iterator<Item = &StackId> {
        self.targets.iter().map(|target| &target.id)
    }

    /// How the apply ended for them.
    pub fn outcomes(&self) -> impl Iterator<Item = StackOutcome> {
        let outcome = |target| apply::stopped_outcome(target, StackResult::Failed, &self.reason);
        self.targets.iter().map(outcome)
    }
}

/// Why no stack counts as removed, if anything hides stacks.
fn reason(layout: &Layout) -> Option<UserError> {
    let first = layout.unseen.first()?;
    let all = layout.unseen.iter();
    let reasons: String = all
        .map(|reason| format!("\n{}: {}", reason.file, reason.message))
        .collect();
    let failure = UserError::new(
        ErrorKind::Layout,
        format!("this stack is not there, and Konverge cannot determine whether it was removed:{reasons}"),
    );
    Some(
        failure
            .at(first.file.to_string(), first.line, first.column)
            .hint("fix that, and the next run takes it down, or finds it again"),
    )
}
