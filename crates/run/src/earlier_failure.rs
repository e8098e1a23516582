//! Finds failures that a change did not cause: the base fails in the same way, in files that the change does not touch.

use std::collections::BTreeSet;

use crate::{Planner, SpecSource, Target, compile_error::CompileError};
use konverge_base::{
    error::UserError,
    model::{RepoPath, StackId, file_source::Source},
};
use konverge_config::Config;
use konverge_kcl::KclError;

/// The file of an error, and the first line of its message. The line number is left out, because it changes with the
/// lines above.
type Root = (Option<String>, String);

/// Returns true if the Spec of the base fails with the same errors, and the change touches none of their files.
pub(crate) async fn is_earlier(planning: &Planner, target: &Target, failure: &CompileError) -> bool {
    let SpecSource::Compiled {
        head,
        base: Some(base),
        ..
    } = &planning.wanted
    else {
        return false;
    };
    if target.head.is_none() || target.base.is_none() || !failure.is_of_the_code {
        return false;
    }
    // A run for code from outside may not fetch unpinned packages. So the base fails here too, although it may compile
    // in a run for the repository's own code.
    if let Some(KclError::NotLocked { .. }) = failure.kcl.as_deref() {
        return false;
    }
    let failure = &*failure.error;
    let errors = roots(&target.id, failure);
    let differs = |(file, _): &Root| {
        let path = file.as_deref().and_then(RepoPath::normalize);
        path.is_some_and(|path| is_touched(&path, base.source.as_ref(), head.source.as_ref()))
    };
    if errors.iter().any(differs) {
        return false;
    }
    if !is_same_language(base.source.as_ref(), head.source.as_ref()) {
        return false;
    }
    match planning.spec_before(target).await {
        Ok(_) => false,
        Err(before) => {
            before.error.kind == failure.kind && errors.is_subset(&roots(&target.id, &before.error))
        }
    }
}

/// Returns true if both revisions use the same KCL core, and read settings files in the same order. A change of these
/// may cause the failure.
fn is_same_language(base: &dyn Source, head: &dyn Source) -> bool {
    let language = |revision: &dyn Source| {
        let config = Config::load(revision).ok()?;
        Some((config.kcl.core().to_owned(), config.kcl.settings))
    };
    let before = language(base);
    before.is_some() && before == language(head)
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
