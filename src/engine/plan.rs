//! Plans a stack, stage by stage. Each runtime reads the live objects; nothing is written.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    RuntimeRegistry,
    engine_plan::EnginePlan,
    interrupted_replacement, normalize,
    ownership::OwnershipLookup,
    plan_builder,
    plan_failures::PlanFailures,
    plan_nodes::{DraftNode, add_deletes, wanted_drafts},
    plan_request::PlanRequest,
    secret_propagation::PropagatedSecrets,
};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId, event::RunEvent, plan::Action, reference::Targets, spec::RuntimeKind,
        state::Replacement,
    },
    runtime::{Granularity, Item, Needs, Pending, PlannedResource, StackScope},
    secrets::Secrets,
    spec::{graph::ResourceGraph, resolve::KnownValue},
};

/// Plans a stack.
///
/// # Errors
/// The Spec has no valid order, or a runtime cannot be reached. A resource that cannot be planned is in
/// [`EnginePlan::failures`] instead.
pub async fn plan(mut request: PlanRequest<'_>) -> Result<EnginePlan, UserError> {
    request.events.event(RunEvent::PlanStarted {
        stack: request.stack.clone(),
        resources: request.spec.resources.len(),
    });
    let prepared = normalize::prepare(
        std::mem::take(&mut request.spec),
        request.cluster.as_ref(),
        request.runtimes,
    )
    .await?;
    let graph = ResourceGraph::from_spec(&prepared.resources)?;
    let targets: Targets = graph.ids().collect();
    let normalize::NormalizedResources { resources, old_ids } = prepared;
    let mut drafts = wanted_drafts(&request, resources, &old_ids, &graph)?;
    let empties_stack = drafts.is_empty() && !request.state.resources.is_empty();
    add_deletes(&request, &mut drafts, &old_ids)?;

    let read = drafts.iter().flat_map(|d| d.references.iter().cloned());
    let scope = StackScope {
        stack: request.stack.clone(),
        earlier: request.state.earlier_identities.clone(),
        data: request.state.runtime.clone(),
        ignore: request.ignore.to_vec(),
        read: Arc::new(read.collect()),
        pending: Arc::default(),
    };
    let mut planner = PlanBuilder {
        scope,
        runtimes: request.runtimes,
        targets: &targets,
        planned: drafts.iter().map(|_| None).collect(),
        expected: HashMap::new(),
        carried: PropagatedSecrets::default(),
        failures: PlanFailures::default(),
        stack: &request.stack,
        begun: &request.state.begun,
        neighbours: OwnershipLookup::of(&request.stack, request.neighbours),
        secrets: request.secrets,
    };
    for deleting in [false, true] {
        let last = drafts
            .iter()
            .filter(|d| d.goes == deleting)
            .map(|d| d.stage)
            .max();
        for stage in last.map(|last| 0..=last).into_iter().flatten() {
            for kind in [RuntimeKind::Terraform, RuntimeKind::Kubernetes] {
                let members: Vec<_> = (0..drafts.len())
                    .filter(|&n| {
                        let draft = &drafts[n];
                        draft.kind == kind && draft.stage == stage && draft.goes == deleting
                    })
                    .collect();
                if !members.is_empty() {
                    planner.plan_segment(kind, &mut drafts, &members).await?;
                }
            }
        }
    }
    let PlanBuilder {
        mut scope,
        planned,
        failures,
        ..
    } = planner;
    // During the apply all earlier stages are finished.
    scope.pending = Arc::default();
    Ok(plan_builder::assemble(
        request,
        scope,
        targets,
        (drafts, planned),
        failures,
        empties_stack,
    ))
}

struct PlanBuilder<'a> {
    scope: StackScope,
    runtimes: &'a RuntimeRegistry,
    targets: &'a Targets,
    planned: Vec<Option<PlannedResource>>,
    /// The values that references of later stages read, and whether the resource is unchanged.
    expected: HashMap<ResourceId, (Value, bool)>,
    /// The secrets in those values.
    carried: PropagatedSecrets,
    failures: PlanFailures,
    stack: &'a StackId,
    begun: &'a BTreeMap<ResourceId, Replacement>,
    neighbours: OwnershipLookup<'a>,
    secrets: &'a Secrets,
}

impl PlanBuilder<'_> {
    async fn plan_segment(
        &mut self,
        kind: RuntimeKind,
        drafts: &mut [DraftNode],
        members: &[usize],
    ) -> Result<(), UserError> {
        let Some(&first) = members.first() else {
            return Ok(());
        };
        let stage = drafts[first].stage;
        let as_one = |&&n: &&usize| drafts[n].granularity == Granularity::Segment;
        let inside = members.iter().filter(as_one);
        let inside: HashSet<_> = inside.map(|&n| drafts[n].item.id.clone()).collect();
        let mut items = Vec::with_capacity(members.len());
        let mut asked = Vec::with_capacity(members.len());
        let held = self.failures.hold(drafts);
        for &member in members {
            if let Some(now) = drafts[member].is_now.take() {
                let note = format!("it is the same object as `{now}`");
                let (item, kind) = (drafts[member].item.clone(), drafts[member].kind);
                self.planned[member] = Some(PlannedResource::forgotten(self.stack, item, kind, note));
                continue;
            }
            if let Some(failed) = held[member].filter(|_| self.needs_what_is_missing(&drafts[member])) {
                let (id, failed) = (drafts[member].item.id.clone(), drafts[failed].item.id.clone());
                self.failures.waiting.insert(id, failed);
                continue;
            }
            match self.item(&mut drafts[member], &inside) {
                Ok(item) => {
                    items.push(item);
                    asked.push(member);
                }
                Err(failure) => {
                    let id = drafts[member].item.id.clone();
                    self.failures.own.insert(id, failure);
                }
            }
        }
        let answers = self.runtimes.get(kind)?.plan(&self.scope, items).await?;
        for (member, answer) in asked.into_iter().zip(answers) {
            let id = drafts[member].item.id.clone();
            let answer = match answer {
                Ok(planned) => self.neighbours.resolve_claims(planned).await,
                failed => failed,
            };
            match answer {
                Ok(mut planned) => {
                    let nothing = PropagatedSecrets::default();
                    let carried = match drafts[member].references.is_empty() {
                        true => &nothing,
                        false => &self.carried,
                    };
                    let wanted = drafts[member].wanted.as_ref();
                    carried.hide(self.stack, &mut planned, wanted, self.secrets);
                    let mut planned =
                        interrupted_replacement::as_agreed(self.begun, self.stack, planned, self.secrets);
                    self.carried.learn(planned.sensitive.clone());
                    if !self.scope.read.contains(&id) {
                        (planned.expected, planned.sensitive) = (None, Vec::new());
                    } else if let Some(expected) = &planned.expected {
                        let settled = planned.public.action == Action::Unchanged;
                        self.expected.insert(id, (expected.clone(), settled));
                    }
                    self.planned[member] = Some(planned);
                }
                Err(failure) => {
                    self.failures.own.insert(id, failure);
                }
            }
        }
        let comes_later = |draft: &DraftNode| !draft.goes && draft.stage > stage;
        if !drafts[first].goes && drafts.iter().any(comes_later) {
            self.add_pending(members);
        }
        Ok(())
    }

    /// Tells later batches what these nodes create or change.
    fn add_pending(&mut self, members: &[usize]) {
        let planned = members.iter().filter_map(|&member| self.planned[member].as_ref());
        let changing = planned.filter(|planned| {
            let is_kubernetes = planned.public.runtime == RuntimeKind::Kubernetes;
            is_kubernetes && !matches!(planned.public.action, Action::Unchanged | Action::Forget)
        });
        let pending = changing.filter_map(|planned| {
            Some(Pending {
                cluster: planned.item.cluster.clone(),
                resource: planned.item.desired.clone()?,
            })
        });
        let pending: Vec<_> = pending.collect();
        Arc::make_mut(&mut self.scope.pending).extend(pending);
    }

    /// Returns true if a draft that waits for a failed one cannot be planned either: it reads unknown values,
    /// or it is applied in one batch with resources that need not wait.
    fn needs_what_is_missing(&self, draft: &DraftNode) -> bool {
        let reads = draft.references.iter().any(|id| self.failures.has(id));
        reads || (draft.granularity == Granularity::Segment && !draft.goes)
    }

    fn item(&self, draft: &mut DraftNode, inside: &HashSet<ResourceId>) -> Result<Item, UserError> {
        let mut item = Item {
            id: draft.item.id.clone(),
            cluster: draft.item.cluster.clone(),
            prior: draft.item.prior.take(),
            desired: None,
            needs: Needs::Planned(draft.depends_on.clone()),
        };
        if draft.references.is_empty() && draft.granularity == Granularity::Resource {
            item.desired = draft.wanted.take();
        }
        let Some(wanted) = &draft.wanted else {
            return Ok(item);
        };
        let keep = |id: &ResourceId| draft.granularity == Granularity::Segment && inside.contains(id);
        let lookup = |id: &ResourceId| match self.expected.get(id) {
            Some((value, true)) => KnownValue::Settled(value),
            Some((value, false)) => KnownValue::Expected(value),
            None => KnownValue::Nothing,
        };
        let attributes = self
            .targets
            .resolve(&wanted.attributes, &keep, &lookup)
            .map_err(|error| UserError::new(ErrorKind::Spec, error.to_string()))?;
        item.desired = Some(wanted.with(attributes));
        Ok(item)
    }
}
