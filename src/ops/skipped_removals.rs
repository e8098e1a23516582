//! Removed stacks that an apply skips: a part of the repository is not readable, so they may still exist.

use super::{Planner, SpecSource, Target};
use crate::{
    error::{ErrorKind, UserError},
    konfig::Layout,
    model::StackId,
};

/// The removed stacks among the targets that an apply skips, and why.
pub(crate) fn among(planning: &Planner, targets: &[Target]) -> Option<(Vec<StackId>, UserError)> {
    let SpecSource::Compiled { head, .. } = &planning.wanted else {
        return None;
    };
    let reason = reason(&head.layout)?;
    let removed = targets.iter().filter(|target| target.head.is_none());
    let removed: Vec<_> = removed.map(|target| target.id.clone()).collect();
    (!removed.is_empty()).then_some((removed, reason))
}

/// Why no stack counts as removed, if anything hides stacks.
pub(crate) fn reason(layout: &Layout) -> Option<UserError> {
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
