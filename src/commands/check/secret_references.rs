//! Checks the references to secrets in the Specs: an unknown store, a path that the stack may not read, a field that
//! everybody can read. No store is queried.

use konverge_base::model::{
    lint::{Diagnostic, LintRule},
    spec::Spec,
    stack::Stack,
};
use konverge_policy::{self as policy, SecretReader};
use konverge_run::OpenRevision;

/// Returns a diagnostic for every reference that an apply would refuse.
pub(super) fn check(workspace: &OpenRevision, compiled: &[(&Stack, Spec)]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (stack, spec) in compiled {
        let reader = SecretReader {
            stack: &stack.id,
            folder: &stack.folder,
        };
        for refusal in policy::secret_refusals(&workspace.config.secrets, reader, spec) {
            let remark = Diagnostic::new(&stack.manifest, LintRule::Secrets, &refusal.message);
            found.push(remark.first_hint(&refusal.hints).of_stack(&stack.id));
        }
    }
    found
}
