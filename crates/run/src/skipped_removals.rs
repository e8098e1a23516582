//! Removed stacks that an apply skips: a part of the repository cannot be read, so these stacks may still exist there.

use crate::{Planner, Target, apply};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
    },
};
use konverge_repo::konfig::Layout;

/// The removed stacks that an apply skips.
pub struct SkippedRemovals {
    targets: Vec<Target>,
    /// The reason why a stack may still exist.
    pub reason: UserError,
}

impl SkippedRemovals {
    /// Removes the deleted stacks from the targets of an apply, if one of them may still exist.
    pub fn split_off(layout: &Layout, targets: &mut Vec<Target>) -> Option<Self> {
        let reason = reason(layout)?;
        let (removed, there) = targets.drain(..).partition(|target| target.head.is_none());
        *targets = there;
        Some(Self {
            targets: removed,
            reason,
        })
    }

    /// Removes the deleted stacks from a planned apply, as [`SkippedRemovals::split_off`] does. If nothing is compiled,
    /// no stack counts as deleted.
    pub fn split_off_planned(planning: &Planner, targets: &mut Vec<Target>) -> Option<Self> {
        Self::split_off(&planning.wanted.head()?.layout, targets)
    }

    /// Finds the deleted stacks in a preview, as [`SkippedRemovals::split_off`] does. The preview still plans these
    /// stacks.
    pub fn in_targets(planning: &Planner, targets: &[Target]) -> Option<Self> {
        let skipped = Self::split_off_planned(planning, &mut targets.to_vec())?;
        (!skipped.targets.is_empty()).then_some(skipped)
    }

    /// Returns the stacks whose removal is skipped.
    pub fn stacks(&self) -> impl Iterator<Item = &StackId> {
        self.targets.iter().map(|target| &target.id)
    }

    /// Returns the outcomes of the skipped stacks.
    pub fn outcomes(&self) -> impl Iterator<Item = StackOutcome> {
        let outcome = |target| apply::stopped_outcome(target, StackResult::Failed, &self.reason);
        self.targets.iter().map(outcome)
    }
}

/// Returns the reason why a removed stack may still exist; `None` if no error hides stacks.
fn reason(layout: &Layout) -> Option<UserError> {
    let first = layout.unseen.first()?;
    let all = layout.unseen.iter();
    let reasons: String = all
        .map(|reason| format!("\n{}: {}", reason.file, reason.message))
        .collect();
    let failure = UserError::new(
        ErrorKind::Layout,
        format!("this stack is missing, and Konverge cannot determine whether it was removed:{reasons}"),
    );
    Some(
        failure
            .at(first.file.to_string(), first.line, first.column)
            .hint("fix this error first; the next run then destroys the stack, or finds it again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::stack;
    use konverge_base::model::stack::SetupError;

    fn targets() -> Vec<Target> {
        vec![
            Target::new(&stack("shop/prod"), None),
            Target::removed(&stack("shop/old")),
        ]
    }

    /// A file that cannot be read hides stacks: their objects would be deleted.
    #[test]
    fn no_stack_is_removed_while_a_part_of_the_repository_cannot_be_read() {
        let file = stack("shop/old").manifest;
        let broken = Layout {
            unseen: vec![
                SetupError::new(file.clone(), "it is not YAML"),
                SetupError::new(stack("pay/old").manifest, "it has no name"),
            ],
            ..Layout::default()
        };
        let mut left = targets();
        let skipped = SkippedRemovals::split_off(&broken, &mut left).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(
            skipped.stacks().map(StackId::as_str).collect::<Vec<_>>(),
            ["shop/old"]
        );
        let reason = &skipped.reason;
        assert!(
            reason.message.contains("it is not YAML") && reason.message.contains("it has no name"),
            "{reason}"
        );
        assert_eq!(reason.location.as_ref().unwrap().file, file.to_string());
        let outcomes: Vec<_> = skipped.outcomes().collect();
        assert_eq!((outcomes.len(), outcomes[0].result), (1, StackResult::Failed));
    }

    #[test]
    fn a_repository_that_was_read_whole_removes_what_it_no_longer_has() {
        let mut left = targets();
        assert!(SkippedRemovals::split_off(&Layout::default(), &mut left).is_none());
        assert_eq!(left.len(), 2);
    }
}
