//! Failures that a change did not cause: the base fails in the same way, at a place that the change does not touch.

use std::collections::BTreeSet;

use super::{Planner, SpecSource, Target};
use crate::{
    error::UserError,
    kcl::KclError,
    model::{RepoPath, StackId, file_source::Source, stack::SetupError},
    spec::SpecError,
};

/// One of the errors of a failure: its file, and the first line of its message. Lines move with what stands above them.
type Root = (Option<String>, String);

/// Returns true if the Spec of the base fails with the same errors, and no file of them differs.
pub(super) async fn is_earlier(planning: &Planner, target: &Target, failure: &UserError) -> bool {
    let SpecSource::Compiled {
        head,
        base: Some(base),
        ..
    } = &planning.wanted
    else {
        return false;
    };
    if target.head.is_none() || target.base.is_none() || !is_of_the_code(failure) {
        return false;
    }
    let errors = roots(&target.id, failure);
    let differs = |(file, _): &Root| {
        let path = file.as_deref().and_then(RepoPath::normalize);
        path.is_some_and(|path| is_touched(&path, base.source.as_ref(), head.source.as_ref()))
    };
    if errors.iter().any(differs) {
        return false;
    }
    match planning.spec_before(target).await {
        Ok(_) => false,
        Err(before) => before.kind == failure.kind && errors.is_subset(&roots(&target.id, &before)),
    }
}

/// Returns true if the files of the repository alone give the error. What fails because of this machine or a server fails on
/// both sides, too.
fn is_of_the_code(failure: &UserError) -> bool {
    match failure.room_error::<KclError>() {
        Some(error) => error.is_of_the_code(),
        None => failure.room_error::<SetupError>().is_some() || failure.room_error::<SpecError>().is_some(),
    }
}

fn is_touched(path: &RepoPath, base: &dyn Source, head: &dyn Source) -> bool {
    base.files().get(path) != head.files().get(path)
}

fn roots(stack: &StackId, failure: &UserError) -> BTreeSet<Root> {
    let first_line = |message: &str| message.lines().next().unwrap_or_default().to_owned();
    if failure.causes.is_empty() {
        let message = failure.message.strip_prefix(&format!("stack {stack}: "));
        let file = failure.location.as_ref().map(|place| place.file.clone());
        return BTreeSet::from([(file, first_line(message.unwrap_or(&failure.message)))]);
    }
    let causes = failure.causes.iter();
    causes
        .map(|cause| {
            let file = cause.location.as_ref().map(|place| place.file.clone());
            (file, first_line(&cause.message))
        })
        .collect()
}
