//! Checks at the end of an apply that everything still exists. A plan is as old as its reads: since then somebody may
//! have deleted a resource that it found unchanged, or what holds the resource may have been recreated.

use std::collections::HashSet;

use super::{Executor, lock};
use crate::{
    apply_order,
    engine_plan::PlanNode,
    runtime::{Granularity, Item, Needs},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, apply_result::ResourceResult, plan::Action, spec::RuntimeKind},
};

impl Executor<'_> {
    /// The failure of an apply in which resources disappeared.
    pub(super) fn missing_failure(&self, missing: &[ResourceId]) -> Option<UserError> {
        let (first, more) = missing.split_first()?;
        let mut nodes = self.plan.nodes.iter().map(|node| &node.planned);
        let runtime = nodes.find(|planned| planned.item.id == *first)?.public.runtime;
        let kind = match runtime {
            RuntimeKind::Kubernetes => ErrorKind::Kubernetes,
            RuntimeKind::Terraform => ErrorKind::Terraform,
        };
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!(
            "`{first}`{more} disappeared during the apply: it was deleted or recreated after it was planned or written"
        );
        Some(
            UserError::new(kind, what)
                .hint("run the apply again: a new plan creates the missing objects")
                .hint("if it disappears again, find out who deletes it: a cluster's audit log says so"),
        )
    }

    /// Finds the resources that no longer exist. It looks only if everything succeeded: otherwise the next run plans
    /// everything again. It does not look if the apply changed nothing, because the plan has just read everything, or
    /// if the plan has a single resource, because the response to its write is as new.
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
        // An object whose owners were all changed or deleted disappears with them, and is not missing. Runtimes see
        // that in these records.
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

    /// Returns a desired resource of a runtime, as it was recorded last.
    fn recorded_item(&self, node: &PlanNode, kind: RuntimeKind) -> Option<Item> {
        let planned = &node.planned;
        // The Job of a hook that ended may be gone.
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

    /// Finds the resources of whole batches that stayed unchanged while something that they depend on was recreated, and
    /// that a new plan changes: only a plan tells whether such a resource was lost.
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
            let planned = self.replan(&members).await?;
            let lost = planned.iter().zip(&members).filter(|(planned, node)| {
                stayed(node) && !matches!(planned.public.action, Action::Unchanged | Action::Forget)
            });
            changed.extend(lost.map(|(planned, _)| planned.item.id.clone()));
        }
        Ok(changed)
    }

    /// The nodes that this apply created again: it deleted them, or they were gone.
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

    /// The nodes that depend on one of these, directly or not.
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
