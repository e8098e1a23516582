//! Plans a stack, stage by stage. Each runtime reads the live objects; nothing is written.
//!
//! Before a resource is created, deleted or taken over, the claims of the other stacks must be known. The engine does
//! not look them up: the plan pauses with its questions ([`PlanStep::Asks`]), and continues when the caller answers
//! them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::{
    awaited_outputs,
    delivered_secrets::{self, SensitivePaths},
    engine_plan::EnginePlan,
    hook_destroy, hook_plan, interrupted_replacement, normalize,
    ownership::{ClaimQuestion, ClaimedObject, OwnerClaim, question, resolve_claim},
    plan_builder,
    plan_error::PlanError,
    plan_failures::PlanFailures,
    plan_nodes::{DraftNode, add_deletes, wanted_drafts},
    plan_request::PlanRequest,
    published_outputs::PublishedOutputs,
    resolve_attributes::resolve_attributes,
    secret_masking, secret_reference_check,
};
use crate::{
    runtime::{EarlierChange, Granularity, Item, Needs, PlanFailure, PlannedResource, StackScope},
    spec::graph::ResourceGraph,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, event::RunEvent, plan::Action, reference::Targets, resolve::KnownValue, spec::RuntimeKind,
    },
};
use konverge_secrets::PropagatedSecrets;

/// Starts to plan a stack.
///
/// # Errors
/// The Spec has no valid order, or a runtime cannot be reached. A resource that cannot be planned is in
/// [`EnginePlan::failures`] instead.
pub async fn plan(mut request: PlanRequest<'_>) -> Result<PlanStep<'_>, PlanError> {
    request.events.event(RunEvent::PlanStarted {
        stack: request.stack.clone(),
        resources: request.spec.resources.len(),
    });
    // Normalizing may change ids (for example it adds a namespace), so everything below uses the new ids.
    let prepared = normalize::prepare(
        std::mem::take(&mut request.spec),
        request.cluster.as_ref(),
        request.runtimes,
    )
    .await?;
    let outputs = PublishedOutputs::of_resources(std::mem::take(&mut request.outputs), &prepared)?;
    let mut graph = ResourceGraph::from_spec(&prepared.resources)?;
    // Hooks are nodes of the graph, so that references to and from their Jobs, and the order that Kubernetes requires,
    // apply to hooks as well.
    let mut hooks = hook_plan::read(
        &prepared.resources,
        &mut graph,
        &request.hooks,
        &request.folder,
        request.secrets,
    )?;
    // These checks come before any live object is read, so that a Spec that is refused in any case costs no request.
    hook_plan::check_rollback(&hooks.tasks, request.state, &request.hooks)?;
    let targets: Targets = graph.ids().collect();
    let normalize::NormalizedResources { resources, old_ids } = prepared;
    secret_reference_check::check(&resources, &targets)?;
    let mut drafts = wanted_drafts(&request, resources, &old_ids, &graph)?;
    // This must be determined before `add_deletes`, which adds the deletions to the drafts.
    let empties_stack = drafts.is_empty() && !request.state.resources.is_empty();
    add_deletes(&request, &mut drafts, &old_ids)?;
    hook_destroy::order(&request, &mut drafts, &mut hooks.tasks)?;

    let read = drafts.iter().flat_map(|d| d.references.iter().cloned());
    let scope = StackScope {
        stack: request.stack.clone(),
        earlier: request.state.earlier_identities.clone(),
        data: request.state.runtime.clone(),
        ignore: request.ignore.to_vec(),
        read: Arc::new(read.chain(outputs.read().cloned()).collect()),
        pending: Arc::default(),
        hooks: Arc::new(hooks.tasks),
        references: request.references.clone(),
        only_compares: request.only_compares,
    };
    let plan = UnfinishedPlan {
        segments: segments(&drafts),
        request,
        scope,
        targets,
        planned: drafts.iter().map(|_| None).collect(),
        expected: HashMap::new(),
        carried: PropagatedSecrets::default(),
        sensitive_paths: SensitivePaths::default(),
        failures: PlanFailures::default(),
        drafts,
        empties_stack,
        hook_notes: hooks.notes,
        outputs,
    };
    Ok(plan.go_on().await?)
}

/// Returns the segments of a plan in their order: the resources of one runtime in one stage.
fn segments(drafts: &[DraftNode]) -> VecDeque<Segment> {
    // Deletions come last, whatever their stage: until then a live object may still use what will be deleted.
    let mut segments = VecDeque::new();
    for deleting in [false, true] {
        let last = drafts
            .iter()
            .filter(|d| d.is_deletion == deleting)
            .map(|d| d.stage)
            .max();
        for stage in last.map(|last| 0..=last).into_iter().flatten() {
            for kind in [RuntimeKind::Terraform, RuntimeKind::Kubernetes] {
                let members: Vec<_> = (0..drafts.len())
                    .filter(|&n| {
                        let draft = &drafts[n];
                        draft.kind == kind && draft.stage == stage && draft.is_deletion == deleting
                    })
                    .collect();
                if !members.is_empty() {
                    segments.push_back(Segment { kind, members });
                }
            }
        }
    }
    segments
}

/// The resources of one runtime in one stage.
struct Segment {
    kind: RuntimeKind,
    members: Vec<usize>,
}

/// The index of a draft, and the plan of the runtime for it.
type SegmentResult = (usize, Result<PlannedResource, PlanFailure>);

/// A step of planning: the plan is complete, or it needs the claims of other stacks to continue.
pub enum PlanStep<'a> {
    /// The claims of other stacks are needed first.
    Asks(Box<PlanAwaitingClaims<'a>>),
    /// The plan is complete.
    Done(Box<EnginePlan>),
}

/// A plan that waits for the claims of other stacks.
pub struct PlanAwaitingClaims<'a> {
    plan: UnfinishedPlan<'a>,
    /// The segment that is planned already.
    segment: Segment,
    results: Vec<SegmentResult>,
}

struct UnfinishedPlan<'a> {
    request: PlanRequest<'a>,
    segments: VecDeque<Segment>,
    scope: StackScope,
    targets: Targets,
    drafts: Vec<DraftNode>,
    planned: Vec<Option<PlannedResource>>,
    /// The values that references of later stages read; the flag is true if the resource stays unchanged.
    expected: HashMap<ResourceId, (Value, bool)>,
    /// The secrets in the values of `expected`.
    carried: PropagatedSecrets,
    /// The paths of sensitive values in resources, even if a value is not known yet.
    sensitive_paths: SensitivePaths,
    failures: PlanFailures,
    empties_stack: bool,
    hook_notes: Vec<String>,
    outputs: PublishedOutputs,
}

impl<'a> PlanStep<'a> {
    /// Completes the plan as if there were no other stacks: nobody claims an object, and nobody releases one.
    ///
    /// # Errors
    /// See [`plan`].
    pub async fn without_other_stacks(self) -> Result<EnginePlan, UserError> {
        let mut step = self;
        loop {
            step = match step {
                Self::Done(plan) => return Ok(*plan),
                Self::Asks(asking) => {
                    let claims = asking
                        .questions()
                        .into_iter()
                        .map(|question| match question.about {
                            ClaimedObject::TakenFrom(owner) => Ok(OwnerClaim::By(owner)),
                            ClaimedObject::Created | ClaimedObject::Deleted | ClaimedObject::Emptied => {
                                Ok(OwnerClaim::Nobody)
                            }
                        });
                    let claims = claims.collect();
                    asking.answer(claims).await?
                }
            };
        }
    }
}

impl<'a> PlanAwaitingClaims<'a> {
    /// Returns the questions about the other stacks.
    pub fn questions(&self) -> Vec<ClaimQuestion<'_>> {
        questions(&self.results).collect()
    }

    /// Continues with one answer for each question, in the order of the questions. An error in place of an answer fails
    /// the resource of the question; so does a missing answer.
    ///
    /// # Errors
    /// See [`plan`].
    pub async fn answer(
        self: Box<Self>,
        claims: Vec<Result<OwnerClaim, UserError>>,
    ) -> Result<PlanStep<'a>, UserError> {
        let Self {
            mut plan,
            segment,
            results,
        } = *self;
        plan.add_segment(&segment, results, claims);
        plan.go_on().await
    }
}

fn questions(results: &[SegmentResult]) -> impl Iterator<Item = ClaimQuestion<'_>> {
    let planned = results.iter().filter_map(|(_, result)| result.as_ref().ok());
    planned.filter_map(question)
}

fn no_answer() -> Result<OwnerClaim, UserError> {
    Err(UserError::new(
        ErrorKind::Internal,
        "the claims of other stacks were not looked up",
    ))
}

impl<'a> UnfinishedPlan<'a> {
    /// Adds the plans of a segment, with the answers to its questions.
    fn add_segment(
        &mut self,
        segment: &Segment,
        results: Vec<SegmentResult>,
        claims: Vec<Result<OwnerClaim, UserError>>,
    ) {
        let mut claims = claims.into_iter();
        for (member, result) in results {
            let result = result.and_then(|planned| {
                let claim = match question(&planned) {
                    Some(_) => Some(claims.next().unwrap_or_else(no_answer)?),
                    None => None,
                };
                Ok(resolve_claim(&self.request.stack, planned, claim)?)
            });
            self.add_planned(member, result);
        }
        self.end_segment(&segment.members);
    }

    /// Plans the remaining segments until one raises a question, or to the end.
    async fn go_on(mut self) -> Result<PlanStep<'a>, UserError> {
        while let Some(segment) = self.segments.pop_front() {
            let results = self.plan_segment(&segment).await?;
            if questions(&results).next().is_some() {
                return Ok(PlanStep::Asks(Box::new(PlanAwaitingClaims {
                    plan: self,
                    segment,
                    results,
                })));
            }
            self.add_segment(&segment, results, Vec::new());
        }
        // An output that reads a sensitive path is refused now, although it is published only after the apply.
        self.outputs
            .check(&self.sensitive_paths, &self.targets, self.request.secrets)?;
        // `pending` is for planning only: during the apply all earlier stages are finished.
        self.scope.pending = Arc::default();
        hook_plan::settle(&self.scope.stack, &self.scope.hooks, &mut self.planned);
        let mut plan = plan_builder::assemble(
            self.request,
            self.scope,
            self.targets,
            self.drafts,
            self.planned,
            self.failures,
            self.empties_stack,
        );
        plan.public.notes.extend(self.hook_notes);
        plan.outputs = self.outputs;
        Ok(PlanStep::Done(Box::new(plan)))
    }

    /// Plans a segment with its runtime. Returns each plan with the index of its draft.
    async fn plan_segment(&mut self, segment: &Segment) -> Result<Vec<SegmentResult>, UserError> {
        let Segment { kind, members } = segment;
        // A runtime that applies whole batches resolves references inside the batch itself, so these stay as they are.
        let drafts = &self.drafts;
        let as_one = |&&n: &&usize| drafts[n].granularity == Granularity::Segment;
        let inside = members.iter().filter(as_one);
        let inside: HashSet<_> = inside.map(|&n| drafts[n].item.id.clone()).collect();
        let mut items = Vec::with_capacity(members.len());
        let mut asked = Vec::with_capacity(members.len());
        let held = self.failures.hold(drafts);
        for &member in members {
            let draft = &mut self.drafts[member];
            let id = draft.item.id.clone();
            // The object stays under its new id, so the runtime need not plan the old one: only its record is removed.
            if let Some(now) = draft.renamed_to.take() {
                let note = format!("it is the same object as `{now}`");
                let (stack, item, kind) = (&self.request.stack, draft.item.clone(), draft.kind);
                self.planned[member] = Some(PlannedResource::forgotten(stack, item, kind, note));
                continue;
            }
            // A resource that reads a value of a failed one would be planned against a value that does not exist.
            if let Some(failed) = held[member].filter(|_| self.needs_what_is_missing(&self.drafts[member])) {
                let failed = self.drafts[failed].item.id.clone();
                self.failures.waiting.insert(id, failed);
                continue;
            }
            match self.item(member, &inside) {
                Ok(item) => {
                    items.push(item);
                    asked.push(member);
                }
                Err(failure) => {
                    self.failures.own.insert(id, failure.into());
                }
            }
        }
        let runtime = self.request.runtimes.get(*kind)?;
        let results = runtime.plan(&self.scope, items).await?;
        Ok(asked.into_iter().zip(results).collect())
    }

    /// Adds the plan of a resource, or the error if there is no plan.
    fn add_planned(&mut self, member: usize, result: Result<PlannedResource, PlanFailure>) {
        let (draft, stack, secrets) = (&self.drafts[member], &self.request.stack, self.request.secrets);
        let id = draft.item.id.clone();
        let mut planned = match result {
            Ok(planned) => planned,
            Err(failure) => {
                self.failures.own.insert(id, failure);
                return;
            }
        };
        // A resource without references cannot contain a secret of another one. Masking it anyway would hide its own
        // texts.
        let nothing = PropagatedSecrets::default();
        let carried = if draft.references.is_empty() {
            &nothing
        } else {
            &self.carried
        };
        // The comparison before and after masking shows whether a secret reached an object that a controller delivers.
        let recorded = planned.recorded.as_ref().filter(|_| draft.is_delivered());
        let before = recorded.map(|recorded| Arc::clone(&recorded.attributes));
        secret_masking::hide(carried, stack, &mut planned, draft.wanted.as_ref(), secrets);
        awaited_outputs::name(stack, &mut planned);
        if let (Some(before), Some(masked)) = (before, &planned.recorded)
            && let Err(failure) = delivered_secrets::check_masked(&id, &before, &masked.attributes)
        {
            self.failures.own.insert(id, failure.into());
            return;
        }
        let begun = &self.request.state.begun;
        let mut planned = interrupted_replacement::as_approved_replacement(begun, stack, planned, secrets);
        self.carried.learn(planned.sensitive.clone());
        self.sensitive_paths
            .learn(&id, std::mem::take(&mut planned.sensitive_paths));
        if !self.scope.read.contains(&id) {
            (planned.expected, planned.sensitive) = (None, Vec::new());
        } else if let Some(expected) = &planned.expected {
            let settled = planned.public.action == Action::Unchanged;
            self.expected.insert(id, (expected.clone(), settled));
        }
        self.planned[member] = Some(planned);
    }

    /// Adds the changes of a segment to the pending ones, if the plan has a later stage.
    fn end_segment(&mut self, members: &[usize]) {
        let Some(&first) = members.first() else { return };
        let first = &self.drafts[first];
        let comes_later = |draft: &DraftNode| !draft.is_deletion && draft.stage > first.stage;
        if !first.is_deletion && self.drafts.iter().any(comes_later) {
            self.add_pending(members);
        }
    }

    /// Adds what these nodes create or change to the pending changes, which the runtime sees when it plans later
    /// batches.
    fn add_pending(&mut self, members: &[usize]) {
        let planned = members.iter().filter_map(|&member| self.planned[member].as_ref());
        let changing = planned.filter(|planned| {
            let is_kubernetes = planned.public.runtime == RuntimeKind::Kubernetes;
            is_kubernetes && !matches!(planned.public.action, Action::Unchanged | Action::Forget)
        });
        let pending = changing.filter_map(|planned| {
            Some(EarlierChange {
                cluster: planned.item.cluster.clone(),
                resource: planned.item.desired.clone()?,
                creates: matches!(planned.public.action, Action::Create | Action::Replace),
            })
        });
        let pending: Vec<_> = pending.collect();
        Arc::make_mut(&mut self.scope.pending).extend(pending);
    }

    /// Returns true if a draft cannot be planned because a draft before it failed: it reads a value of the failed one,
    /// or it is applied in one batch with other resources.
    fn needs_what_is_missing(&self, draft: &DraftNode) -> bool {
        let reads = draft.references.iter().any(|id| self.failures.has(id));
        reads || (draft.granularity == Granularity::Segment && !draft.is_deletion)
    }

    fn item(&mut self, member: usize, inside: &HashSet<ResourceId>) -> Result<Item, UserError> {
        let draft = &mut self.drafts[member];
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
        if draft.is_delivered() {
            self.sensitive_paths.check(wanted, &self.targets)?;
        }
        let keep = |id: &ResourceId| draft.granularity == Granularity::Segment && inside.contains(id);
        let lookup = |id: &ResourceId| match self.expected.get(id) {
            Some((value, true)) => KnownValue::Settled(value),
            Some((value, false)) => KnownValue::Expected(value),
            None => KnownValue::Nothing,
        };
        item.desired = Some(resolve_attributes(&self.targets, wanted, &keep, &lookup)?);
        Ok(item)
    }
}
