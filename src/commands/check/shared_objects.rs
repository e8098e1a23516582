//! Finds objects that belong to two stacks, from their Specs only.

use std::collections::BTreeMap;

use konverge_base::model::{
    claim::Claim,
    lint::{Diagnostic, LintRule},
    spec::Spec,
    stack::Stack,
    text::first_few,
};
use konverge_run::OpenRevision;
use konverge_run::cluster_selection::{self, GivenCluster, Live};

/// The number of objects that a diagnostic names; the others are counted.
const NAMED: usize = 3;

/// Returns one diagnostic for each stack with objects of an earlier stack. Stacks are compared only if `konverge.yaml`
/// defines their clusters.
pub(super) fn check(workspace: &OpenRevision, compiled: &[(&Stack, Spec)]) -> Vec<Diagnostic> {
    let mut owners: BTreeMap<Claim, (&Stack, bool)> = BTreeMap::new();
    let mut found: BTreeMap<(usize, &str), Vec<String>> = BTreeMap::new();
    for (at, (stack, spec)) in compiled.iter().enumerate() {
        let given = GivenCluster::default();
        let cluster = cluster_selection::cluster_of(&workspace.config, stack, &given, Live::Auto);
        let cluster = cluster.ok().flatten();
        for resource in &spec.resources {
            let Some(claim) = Claim::of_resource(resource, cluster.as_ref()) else {
                continue;
            };
            let is_shared = resource.is_shared();
            let (owner, with_others) = *owners.entry(claim).or_insert((stack, is_shared));
            let shared = is_shared && with_others && owner.id.is_sibling_of(stack.id.as_str());
            if owner.id != stack.id && !shared {
                let twice = found.entry((at, owner.id.as_str())).or_default();
                twice.push(resource.id.to_string());
            }
        }
    }
    let remarks = found.into_iter().map(|((at, owner), ids)| {
        let (stack, _) = &compiled[at];
        let named = first_few(ids.iter().map(|id| format!("`{id}`")), NAMED);
        let message =
            format!("{named}: in stack `{owner}` too, on the same cluster; only one stack can own an object");
        Diagnostic::new(&stack.manifest, LintRule::Ownership, &message).hint(format!(
            "remove the object from stack `{}` or from stack `{owner}`",
            stack.id
        ))
    });
    remarks.collect()
}
