//! Runs the `failed` hooks of an apply if another resource failed.

use super::{Executor, lock};
use crate::apply_order::is_failed_hook;
use konverge_base::model::{ResourceId, apply_result::ResourceResult, plan::Action};

impl Executor<'_> {
    /// Runs the `failed` hooks if something failed and the run may continue. Returns the hooks that did not run.
    ///
    /// The results of the hooks do not change the result of the apply.
    pub(super) async fn run_failed_hooks(&self) -> Vec<ResourceId> {
        let nodes = &self.plan.nodes;
        let planned = (0..nodes.len()).filter(|&n| {
            let runs = nodes[n].planned.public.action == Action::Run && nodes[n].held.is_none();
            runs && is_failed_hook(&nodes[n], &self.plan.scope.hooks)
        });
        let failures = lock(&self.failures).clone();
        let mut unused = Vec::new();
        for node in planned {
            let id = nodes[node].planned.item.id.clone();
            if failures.is_empty() || self.is_cancelled() {
                unused.push(id);
                continue;
            }
            // A hook needs its dependencies (such as its ServiceAccount): it is skipped if one of them was not applied.
            let is_missing = |&&on: &&usize| {
                let outcomes = lock(&self.outcomes);
                let outcome = outcomes.get(&nodes[on].planned.item.id);
                outcome.is_some_and(|outcome| outcome.result != ResourceResult::Done)
            };
            match nodes[node].waits.iter().find(is_missing) {
                Some(&on) => {
                    let why = format!("`{}` failed", nodes[on].planned.item.id);
                    self.skip(&[node], &why);
                }
                None => drop(self.carry_out(&[node]).await),
            }
        }
        // The apply must report the first failure, so the failures of the hooks themselves are dropped here. Their
        // results are still in the outcomes.
        *lock(&self.failures) = failures;
        unused
    }
}
