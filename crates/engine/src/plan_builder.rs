//! Builds the plan from the results of all drafts: the public part, the part to execute, and the resources that
//! failures hold back.

use super::{
    engine_plan::{EnginePlan, PlanNode},
    plan_failures::{PlanFailures, combine_failures, of_resource},
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

/// Builds the plan from the drafts and their plans.
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
        failure.error.message = request.secrets.mask(&failure.error.message);
    }
    let all_stops = failures.own.values().any(|failure| failure.stops_stack);
    let held: Vec<Option<ResourceId>> = held_back_by(&drafts, &failures);
    // Drafts without a plan become no nodes, so the indices of the drafts in `waits` are translated.
    let mut node_of = vec![None; drafts.len()];
    for (node, draft) in (0..drafts.len()).filter(|&n| planned[n].is_some()).enumerate() {
        node_of[draft] = Some(node);
    }
    let (mut own, mut waiting) = (Vec::new(), Vec::new());
    let mut refusal = None;
    let mut public: Vec<ResourcePlan> = Vec::with_capacity(drafts.len());
    let mut nodes = Vec::with_capacity(drafts.len());
    for ((draft, planned), held) in drafts.into_iter().zip(planned).zip(held) {
        let id = draft.item.id;
        let Some(mut planned) = planned else {
            if let Some(on) = failures.waiting.remove(&id) {
                waiting.push((id, on));
            } else if let Some(failure) = failures.own.remove(&id) {
                if failure.stops_stack {
                    refusal.get_or_insert_with(|| of_resource(&id, (*failure.error).clone()));
                }
                own.push((id, *failure.error));
            }
            continue;
        };
        let desired = planned.item.desired.as_ref();
        // An unknown value anywhere makes the plan provisional: only a second plan during the apply can be exact.
        let provisional = planned.provisional
            || desired.is_some_and(|d| d.attributes.values().any(masked_value::holds_unknown));
        let settled = planned.public.action == Action::Unchanged && !provisional;
        // If a failure stops the whole stack, nothing is applied at all. Marking single resources as held back would
        // suggest that the others are applied.
        let held = held.filter(|_| !settled && !all_stops);
        if let Some(failed) = &held {
            planned.public.notes.push(if draft.is_deletion {
                format!("skipped: nothing is deleted while `{failed}` cannot be planned")
            } else {
                format!("skipped: it depends on `{failed}`, which could not be planned")
            });
        }
        // The changes of most plans are moved, not copied, because they are large: only the public plan needs them. The
        // state also records those of a replacement when it starts.
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
        refusal,
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

/// Returns, for each draft, the failed resource that holds it back. Every failure holds back all deletions: the failed
/// resource may still use the deleted one, through an id or a value that only its plan would show.
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
