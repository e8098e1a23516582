//! Builds the plan from the results of all drafts: what is shown, what is executed, and what failures hold
//! back.

use std::collections::HashMap;

use super::{
    plan::{EnginePlan, PlanNode, PlanRequest},
    plan_nodes::DraftNode,
};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, masked_value,
        plan::{Action, Basis, ResourcePlan, StackPlan},
        reference::Targets,
    },
    runtime::{PlannedResource, StackScope},
};

/// The failures of a plan.
#[derive(Default)]
pub(super) struct PlanFailures {
    /// Each failed resource with its reason.
    pub own: HashMap<ResourceId, UserError>,
    /// The skipped resources, each with the failed resource that it waits for.
    pub waiting: HashMap<ResourceId, ResourceId>,
}

impl PlanFailures {
    /// Returns true if there is no plan of this resource, for any reason.
    pub fn has(&self, id: &ResourceId) -> bool {
        self.own.contains_key(id) || self.waiting.contains_key(id)
    }

    /// For each draft the index of a failed draft that it waits for, directly or indirectly.
    pub fn hold(&self, drafts: &[DraftNode]) -> Vec<Option<usize>> {
        let mut held = vec![None; drafts.len()];
        if self.own.is_empty() {
            return held;
        }
        let mut dependents = vec![Vec::new(); drafts.len()];
        for (index, draft) in drafts.iter().enumerate() {
            for &on in &draft.waits {
                dependents[on].push(index);
            }
        }
        let failed = |draft: &DraftNode| self.own.contains_key(&draft.item.id);
        for failed in (0..drafts.len()).filter(|&n| failed(&drafts[n])) {
            let mut reached = vec![failed];
            while let Some(next) = reached.pop() {
                for &dependent in &dependents[next] {
                    if held[dependent].is_none() {
                        held[dependent] = Some(failed);
                        reached.push(dependent);
                    }
                }
            }
        }
        held
    }
}

/// Returns true if a failure stops the whole stack. An error from a policy, from the cluster or in the Spec
/// itself must be fixed before anything is changed. Missing Terraform executables, packages, credentials or
/// services do not concern the cluster.
pub(super) fn stops_the_stack(failure: &UserError) -> bool {
    failure.kind != ErrorKind::Terraform
}

/// Builds the plan.
pub(super) fn assemble(
    request: PlanRequest<'_>,
    scope: StackScope,
    targets: Targets,
    (drafts, planned): (Vec<DraftNode>, Vec<Option<PlannedResource>>),
    mut failures: PlanFailures,
    empties_stack: bool,
) -> EnginePlan {
    for failure in failures.own.values_mut() {
        failure.message = request.secrets.mask(&failure.message);
    }
    let all_stops = failures.own.values().any(stops_the_stack);
    let held: Vec<Option<ResourceId>> = held_back_by(&drafts, &failures);
    let mut places = vec![None; drafts.len()];
    for (place, draft) in (0..drafts.len()).filter(|&n| planned[n].is_some()).enumerate() {
        places[draft] = Some(place);
    }
    let (mut own, mut waiting) = (Vec::new(), Vec::new());
    let mut public: Vec<ResourcePlan> = Vec::with_capacity(drafts.len());
    let mut nodes = Vec::with_capacity(drafts.len());
    for ((draft, planned), held) in drafts.into_iter().zip(planned).zip(held) {
        let id = draft.item.id;
        let Some(mut planned) = planned else {
            if let Some(on) = failures.waiting.remove(&id) {
                waiting.push((id, on));
            } else if let Some(failure) = failures.own.remove(&id) {
                own.push((id, failure));
            }
            continue;
        };
        let desired = planned.item.desired.as_ref();
        let provisional = planned.provisional
            || desired.is_some_and(|d| d.attributes.values().any(masked_value::holds_unknown));
        let settled = planned.public.action == Action::Unchanged && !provisional;
        let held = held.filter(|_| !settled && !all_stops);
        if let Some(failed) = &held {
            planned.public.notes.push(match draft.goes {
                true => format!("held back: nothing is deleted while `{failed}` cannot be planned"),
                false => format!("held back: it waits for `{failed}`, which could not be planned"),
            });
        }
        let changes = match planned.public.action {
            Action::Replace => planned.public.changes.clone(),
            _ => std::mem::take(&mut planned.public.changes),
        };
        public.push(ResourcePlan {
            changes,
            ..planned.public.clone()
        });
        nodes.push(PlanNode {
            granularity: draft.granularity,
            stage: draft.stage,
            waits: draft.waits.into_iter().filter_map(|on| places[on]).collect(),
            held,
            depends_on: draft.depends_on,
            goes: draft.goes,
            refers: !draft.references.is_empty(),
            wanted: draft.wanted,
            provisional,
            planned,
        });
    }
    let mut public = StackPlan::new(request.folder, request.stack, Basis::Live, public);
    public.error = combine_failures(&own).map(|failure| failure.body());
    if !all_stops {
        let failed = own.iter().map(|(id, _)| id);
        let planned = nodes.iter().filter(|node| node.held.is_some());
        let ids = failed.chain(waiting.iter().map(|(id, _)| id));
        public.held_back = ids
            .chain(planned.map(|node| &node.planned.item.id))
            .cloned()
            .collect();
        public.held_back.sort();
    }
    EnginePlan {
        public,
        failures: own,
        waiting,
        nodes,
        targets,
        scope,
        begun: request.state.begun.clone(),
        runtimes: request.runtimes.clone(),
        secrets: request.secrets.clone(),
        empties_stack,
    }
}

/// The failure that holds back each draft. Every failure holds back all deletions: the failed resource may
/// use what is to be deleted, under an id of its own or through a value that only its plan would show.
fn held_back_by(drafts: &[DraftNode], failures: &PlanFailures) -> Vec<Option<ResourceId>> {
    let any = drafts
        .iter()
        .find(|draft| failures.own.contains_key(&draft.item.id));
    let waits = failures.hold(drafts).into_iter().zip(drafts);
    waits
        .map(|(failed, draft)| match (failed, draft.goes) {
            (Some(failed), _) => Some(drafts[failed].item.id.clone()),
            (None, true) => any.map(|draft| draft.item.id.clone()),
            (None, false) => None,
        })
        .collect()
}

/// Adds the resource's name to a failure, unless it has it already.
pub(super) fn of_resource(id: &ResourceId, failure: UserError) -> UserError {
    match failure.message.contains(&format!("`{id}`")) {
        true => failure,
        false => failure.context(format_args!("`{id}`")),
    }
}

/// Combines all failures into one: the first in full, the others by name.
pub(super) fn combine_failures(failures: &[(ResourceId, UserError)]) -> Option<UserError> {
    let (id, first) = failures.first()?;
    let mut failure = of_resource(id, first.clone());
    if failures.len() > 1 {
        let others: Vec<_> = failures[1..]
            .iter()
            .take(5)
            .map(|(id, failure)| of_resource(id, failure.clone()).message)
            .collect();
        failure.message = format!(
            "{}; and {} more: {}",
            failure.message,
            failures.len() - 1,
            others.join("; ")
        );
    }
    Some(failure)
}
