//! Checks at the end of an apply that every resource still exists. A plan shows the objects as they were when it read
//! them: since then somebody may have deleted an unchanged resource, or recreated the Namespace or CRD that contains
//! it.

use std::collections::HashSet;

use super::{Executor, lock};
use crate::{
    apply_order,
    engine_plan::PlanNode,
    runtime::{Granularity, Item, Needs},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, apply_result::ResourceResult, plan::Action, spec::RuntimeKind, text::first_few},
};

impl Executor<'_> {
    /// Returns the error for an apply during which resources disappeared.
    pub(super) fn missing_failure(&self, missing: &[ResourceId]) -> Option<UserError> {
        let first = missing.first()?;
        let mut nodes = self.plan.nodes.iter().map(|node| &node.planned);
        let runtime = nodes.find(|planned| planned.item.id == *first)?.public.runtime;
        let kind = match runtime {
            RuntimeKind::Kubernetes => ErrorKind::Kubernetes,
            RuntimeKind::Terraform => ErrorKind::Terraform,
        };
        let named = first_few(missing.iter().map(|id| format!("`{id}`")), 1);
        let what = format!(
            "{named} disappeared during the apply: it was deleted or recreated after it was planned or written"
        );
        Some(
            UserError::new(kind, what)
                .hint("run the apply again: a new plan creates the missing objects")
                .hint("if it disappears again, find out who deletes it: a cluster's audit log says so"),
        )
    }

    /// Finds the resources that no longer exist.
    ///
    /// The check is skipped in three cases: something failed (the next run plans everything again), the apply changed
    /// nothing (the plan has just read everything), or the plan has one resource (the response to its write is equally
    /// recent).
    pub(super) async fn find_missing(&self) -> Result<Vec<ResourceId>, UserError> {
        let nodes = &self.plan.nodes;
        let has_work = |node: &PlanNode| {
            node.provisional || node.planned.unready || node.planned.public.action != Action::Unchanged
        };
        let has_succeeded = {
            let outcomes = lock(&self.outcomes);
            outcomes.values().all(|one| one.result == ResourceResult::Done) && lock(&self.stopped).is_none()
        };
        if !has_succeeded || nodes.len() == 1 || !nodes.iter().any(has_work) {
            return Ok(Vec::new());
        }
        // An object is garbage collected when all its owners were changed or deleted, and then it is not missing. The
        // runtimes learn from these earlier records which owners were touched.
        let earlier: Vec<_> = {
            let outcomes = lock(&self.outcomes);
            let changed = nodes.iter().map(|node| &node.planned.item);
            let changed = changed.filter(|item| outcomes.contains_key(&item.id));
            changed.filter_map(|item| item.prior.clone()).collect()
        };
        let mut missing = Vec::new();
        for kind in [RuntimeKind::Terraform, RuntimeKind::Kubernetes] {
            let items: Vec<_> = nodes
                .iter()
                .filter_map(|node| self.recorded_item(node, kind))
                .collect();
            if !items.is_empty() {
                let runtime = self.plan.runtimes.get(kind)?;
                missing.extend(runtime.find_missing(&items, &earlier).await?);
            }
        }
        missing.extend(self.changed_dependents().await?);
        Ok(missing)
    }

    /// Returns a desired resource of a runtime with its latest record; `None` if the resource is not checked.
    fn recorded_item(&self, node: &PlanNode, kind: RuntimeKind) -> Option<Item> {
        let planned = &node.planned;
        // The Job of a hook may be deleted after it ended, for example by `ttlSecondsAfterFinished`.
        let is_hook = self.plan.scope.hooks.contains_key(&planned.item.id);
        let is_other = planned.public.runtime != kind || planned.public.action == Action::Forget;
        if node.is_deletion || is_hook || is_other {
            return None;
        }
        let written = lock(&self.written).get(&planned.item.id).cloned();
        Some(Item {
            id: planned.item.id.clone(),
            cluster: planned.item.cluster.clone(),
            prior: Some(written.or_else(|| planned.recorded.clone())?),
            desired: None,
            needs: Needs::default(),
        })
    }

    /// Finds the resources that a new plan would change, among those whose dependencies were recreated and that are
    /// applied as a whole batch (Terraform). Such a runtime cannot say whether a resource still exists: only a new plan
    /// shows it.
    async fn changed_dependents(&self) -> Result<Vec<ResourceId>, UserError> {
        let nodes = &self.plan.nodes;
        let affected = self.dependents(self.recreated());
        let mut changed = Vec::new();
        for unit in apply_order::group(nodes, &self.plan.scope.hooks).units {
            let members: Vec<_> = unit.members.iter().map(|&member| &nodes[member]).collect();
            let stayed = |node: &PlanNode| !lock(&self.outcomes).contains_key(&node.planned.item.id);
            let may_be_lost = |&member: &usize| {
                let node = &nodes[member];
                let in_batch = node.granularity == Granularity::Segment && !node.is_deletion;
                in_batch && affected.contains(&member) && stayed(node)
            };
            if !unit.members.iter().any(may_be_lost) {
                continue;
            }
            // The runtime plans a batch only as a whole, so all members are planned again although some cannot be lost.
            let planned = self.replan(&members).await?;
            let lost = planned.iter().zip(&members).filter(|(planned, node)| {
                stayed(node) && !matches!(planned.public.action, Action::Unchanged | Action::Forget)
            });
            changed.extend(lost.map(|(planned, _)| planned.item.id.clone()));
        }
        Ok(changed)
    }

    /// Returns the nodes that this apply created again: it replaced them, or they were recorded but gone.
    fn recreated(&self) -> Vec<usize> {
        let nodes = &self.plan.nodes;
        let outcomes = lock(&self.outcomes);
        let is_recreated = |node: &PlanNode| {
            let outcome = outcomes.get(&node.planned.item.id);
            outcome.is_some_and(|outcome| match outcome.action {
                Action::Replace => true,
                Action::Create => node.planned.item.prior.is_some(),
                _ => false,
            })
        };
        (0..nodes.len()).filter(|&n| is_recreated(&nodes[n])).collect()
    }

    /// Returns the nodes that depend on one of the nodes in `open`, directly or not.
    fn dependents(&self, mut open: Vec<usize>) -> HashSet<usize> {
        let nodes = &self.plan.nodes;
        let mut dependents = vec![Vec::new(); nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            for &on in &node.waits {
                dependents[on].push(index);
            }
        }
        let mut found = HashSet::new();
        while let Some(node) = open.pop() {
            let fresh = dependents[node]
                .iter()
                .filter(|&&dependent| found.insert(dependent));
            open.extend(fresh);
        }
        found
    }
}
