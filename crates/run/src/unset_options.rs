//! Finds the KCL options that a stack's code reads but nobody sets, so that their values are `None`.

use crate::OpenRevision;
use konverge_base::{
    error::UserError,
    model::{stack::Stack, text::first_few},
};
use konverge_engine::spec::SpecError;
use konverge_repo::affected::option_reads;

/// The maximum number of options that an error lists.
const NAMED: usize = 3;

/// Converts the error of an invalid Spec. If an object has no name, the error lists the unset options, which may be the
/// cause.
pub(crate) fn explain(workspace: &OpenRevision, stack: &Stack, error: SpecError) -> UserError {
    let is_unset = error.is_unset;
    let failure = UserError::from(error);
    if !is_unset {
        return failure;
    }
    let unset = find(workspace, stack);
    if unset.is_empty() {
        return failure
            .hint("the value is None: set a value, or leave the whole object out where there is none");
    }
    let named = first_few(unset.iter().map(String::as_str), NAMED);
    failure.hint(format!(
        "not set, and therefore None: the option {named}. Set it under `kcl_options` of the stack's kcl.yaml \
         or ci-test/settings.yaml, or give the call `option(…)` a `default`"
    ))
}

/// Formats each unset option as `` `name` (file:line) ``, in the order of the files.
fn find(workspace: &OpenRevision, stack: &Stack) -> Vec<String> {
    let (Ok(setup), Ok(closure)) = (&stack.compile, workspace.analysis.closure(stack)) else {
        return Vec::new();
    };
    let is_set = |name: &str| setup.options.iter().any(|(known, _)| known == name);
    let mut names = Vec::new();
    let mut unset = Vec::new();
    let code = closure
        .files
        .iter()
        .filter(|file| file.path.file_name().ends_with(".k"));
    for file in code {
        let Ok(content) = workspace.source.read(file.blob) else {
            continue;
        };
        for read in option_reads(&content) {
            if !read.has_default && !is_set(&read.name) && !names.contains(&read.name) {
                unset.push(format!(
                    "`{}` ({}:{})",
                    read.name.escape_debug(),
                    file.path,
                    read.line
                ));
                names.push(read.name);
            }
        }
    }
    unset
}
