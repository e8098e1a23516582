//! Builds the plan from the results of all drafts: what is shown, what is executed, and what failures hold
//! back.

use super::{
    engine_plan::{EnginePlan, PlanNode},
    plan_failures::{PlanFailures, combine_failures, stops_the_stack},
    plan_nodes::DraftNode,
    plan_request::PlanRequest,
    published_outputs::PublishedOutputs,
};
use crate::runtime::{PlannedResource, StackScope};
use konverge_base::model::{
    ResourceId, masked_value,
    plan::{Action, Basis, ResourcePlan, StackPlan},
    reference::Targets,
};

/// Builds the plan.
pub(super) fn assemble(
    request: PlanRequest<'_>,
    scope: StackScope,
    targets: Targets,
    drafts: Vec<DraftNode>,
    planned: Vec<Option<PlannedResource>>,
    mut failures: PlanFailures,
    empties_stack: bool,
) -> EnginePlan {
    for failure in failures.own.values_mut() {
        failure.message = request.secrets.mask(&failure.message);
    }
    let all_stops = failures.own.values().any(stops_the_stack);
    let held: Vec<Option<ResourceId>> = held_back_by(&drafts, &failures);
    let mut node_of = vec![None; drafts.len()];
    for (node, draft) in (0..drafts.len()).filter(|&n| planned[n].is_some()).enumerate() {
        node_of[draft] = Some(node);
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
        // If a failure stops the whole stack, nothing of it is applied: single resources are not marked as held back.
        let held = held.filter(|_| !settled && !all_stops);
        if let Some(failed) = &held {
            planned.public.notes.push(if draft.is_deletion {
                format!("skipped: nothing is deleted while `{failed}` cannot be planned")
            } else {
                format!("skipped: it depends on `{failed}`, which could not be planned")
            });
        }
        // The changes are in the public plan alone; those of a replacement are also recorded when it starts.
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
            waits: draft.waits.into_iter().filter_map(|on| node_of[on]).collect(),
            held,
            depends_on: draft.depends_on,
            is_deletion: draft.is_deletion,
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
        outputs: PublishedOutputs::default(),
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
        .map(|(failed, draft)| match (failed, draft.is_deletion) {
            (Some(failed), _) => Some(drafts[failed].item.id.clone()),
            (None, true) => any.map(|draft| draft.item.id.clone()),
            (None, false) => None,
        })
        .collect()
}
