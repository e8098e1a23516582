//! Checks the outputs that stacks publish and read: names that nobody publishes, stacks that do not exist or may not
//! be read, and circles.

use super::checked_files::file_of;
use konverge_base::model::{
    lint::{Diagnostic, LintRule},
    spec::Spec,
    stack::Stack,
};
use konverge_run::{OpenRevision, compiler::Compilers, stack_outputs};
use konverge_secrets::{Secrets, redact};

/// Returns one finding for each stack that reads or publishes outputs incorrectly.
pub(super) async fn check(
    workspace: &OpenRevision,
    compilers: &Compilers,
    compiled: &[(&Stack, Spec)],
    secrets: &Secrets,
) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (stack, spec) in compiled {
        let Err(failure) = stack_outputs::check(workspace, compilers, secrets, stack, spec).await else {
            continue;
        };
        let failure = redact::failure(&failure, secrets);
        let file = file_of(failure.location.as_ref()).unwrap_or_else(|| stack.manifest.clone());
        let problem = Diagnostic::new(&file, LintRule::Structure, &failure.message);
        found.push(problem.first_hint(&failure.hints).of_stack(&stack.id));
    }
    found
}
