//! Applies one batch. A batch with unknown values is planned again first.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use serde_json::Value;

use super::{Executor, lock, with_dependencies};
use crate::{
    engine_plan::PlanNode,
    interrupted_replacement,
    policy_input::LatePlan,
    resolve_attributes::resolve_attributes,
    runtime::{AppliedResource, ApplySink, Granularity, Needs, PlannedResource, RecordFailure, StackScope},
    secret_masking,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        apply_result::ResourceResult,
        event::RunEvent,
        plan::Action,
        resolve::KnownValue,
        state::{JournalEntry, Recorded, Replacement},
    },
};

impl Executor<'_> {
    /// Applies the members. Returns true if all of them succeeded.
    pub(super) async fn carry_out(&self, members: &[usize]) -> bool {
        let result = self.try_carry_out(members).await;
        if let Err(failure) = result {
            for &member in members {
                let planned = &self.plan.nodes[member].planned;
                // The runtime may have reported some members before the call failed: their own results are more exact.
                let known = lock(&self.outcomes).contains_key(&planned.item.id);
                if !known {
                    self.fail(&planned.item.id, planned.public.action, &failure);
                }
            }
            return false;
        }
        let outcomes = lock(&self.outcomes);
        members.iter().all(|&member| {
            let outcome = outcomes.get(&self.plan.nodes[member].planned.item.id);
            outcome.is_none_or(|o| o.result == ResourceResult::Done)
        })
    }

    async fn try_carry_out(&self, members: &[usize]) -> Result<(), UserError> {
        let nodes: Vec<&PlanNode> = members.iter().map(|&n| &self.plan.nodes[n]).collect();
        // A batch with unknown values is planned again, because its dependencies exist now and their values are known.
        let planned = if nodes.iter().any(|node| node.provisional) {
            self.plan_again(&nodes).await?
        } else {
            let planned = nodes.iter().map(|node| node.planned.clone());
            planned.map(|planned| self.with_needs_done(planned)).collect()
        };
        let (touched, untouched): (Vec<_>, Vec<_>) = planned
            .into_iter()
            .zip(&nodes)
            .partition(|(planned, node)| is_work(planned, node));
        for (planned, node) in untouched {
            self.record_result(planned, node).await?;
        }
        let Some((first, node)) = touched.first() else {
            return Ok(());
        };
        // In a runtime that applies whole batches, every member counts as work. If none of them changes, the runtime is
        // not called at all.
        let kind = first.public.runtime;
        if node.granularity == Granularity::Segment
            && touched
                .iter()
                .all(|(p, _)| p.public.action == Action::Unchanged && !p.unready)
        {
            for (planned, node) in touched {
                self.record_result(planned, node).await?;
            }
            return Ok(());
        }
        let scope = self.scope();
        let sink = JournalSink {
            walk: self,
            unit: touched
                .iter()
                .map(|(planned, node)| {
                    let member = BatchMember {
                        action: planned.public.action,
                        node,
                        replacement: interrupted_replacement::replacement(planned, &self.plan.secrets),
                    };
                    (planned.item.id.clone(), member)
                })
                .collect(),
            ended: Mutex::default(),
            last_progress: Mutex::default(),
        };
        let planned: Vec<PlannedResource> = touched.into_iter().map(|(planned, _)| planned).collect();
        // The ids are copied, because the call below takes the plans: afterwards each resource without a reported
        // result must be found.
        let asked: Vec<_> = planned
            .iter()
            .map(|p| (p.item.id.clone(), p.public.action))
            .collect();
        for planned in planned.iter().filter(|p| p.public.action != Action::Unchanged) {
            self.request.events.event(RunEvent::ResourceStarted {
                stack: self.plan.public.id.clone(),
                id: planned.item.id.clone(),
                action: planned.public.action,
            });
            for note in &planned.public.notes {
                self.request.events.event(RunEvent::ResourceNoted {
                    stack: self.plan.public.id.clone(),
                    id: planned.item.id.clone(),
                    note: self.plan.secrets.mask(note),
                });
            }
        }
        let result = self.plan.runtimes.get(kind)?.apply(&scope, planned, &sink).await;
        // A resource without a result must not count as applied, even if the call returned `Ok`.
        let ended = sink.ended.into_inner().expect("no panic while the lock is held");
        let silent: Vec<_> = asked.into_iter().filter(|(id, _)| !ended.contains(id)).collect();
        let failure = match (result, silent.is_empty()) {
            (Ok(()), true) => return Ok(()),
            (Err(failure), _) => failure,
            (Ok(()), false) => UserError::new(
                ErrorKind::Internal,
                "internal error: the runtime reported no result",
            ),
        };
        for (id, action) in silent {
            self.fail(&id, action, &failure);
        }
        Err(failure)
    }

    fn scope(&self) -> StackScope {
        StackScope {
            stack: self.plan.scope.stack.clone(),
            earlier: self.plan.scope.earlier.clone(),
            data: lock(&self.data).clone(),
            ignore: self.plan.scope.ignore.clone(),
            read: Arc::clone(&self.plan.scope.read),
            pending: Arc::default(),
            hooks: Arc::clone(&self.plan.scope.hooks),
            references: self.plan.scope.references.clone(),
            only_compares: false,
        }
    }

    /// Reduces the needs of a resource to the resources that this run created or changed.
    fn done(&self, needs: Needs) -> Needs {
        let (Needs::Planned(mut ids) | Needs::Done(mut ids)) = needs;
        let outcomes = lock(&self.outcomes);
        ids.retain(|id| outcomes.contains_key(id));
        Needs::Done(ids)
    }

    fn with_needs_done(&self, mut planned: PlannedResource) -> PlannedResource {
        planned.item.needs = self.done(planned.item.needs);
        planned
    }

    /// Plans resources again, with the values and the records that this run has so far.
    pub(super) async fn replan(&self, nodes: &[&PlanNode]) -> Result<Vec<PlannedResource>, UserError> {
        let inside: HashSet<_> = nodes.iter().map(|node| &node.planned.item.id).collect();
        let mut items = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut item = node.planned.item.clone();
            item.needs = self.done(item.needs);
            let written = lock(&self.written).get(&item.id).cloned();
            // A resource that this run wrote already is compared with what was written, not with the old state.
            item.prior = written.or(item.prior);
            if let Some(wanted) = &node.wanted {
                let keep = |id: &ResourceId| node.granularity == Granularity::Segment && inside.contains(id);
                let live = lock(&self.live);
                let lookup = |id: &ResourceId| live.get(id).map_or(KnownValue::Nothing, KnownValue::Final);
                item.desired = Some(resolve_attributes(&self.plan.targets, wanted, &keep, &lookup)?);
            }
            items.push(item);
        }
        let kind = nodes[0].planned.public.runtime;
        let scope = self.scope();
        let results = self.plan.runtimes.get(kind)?.plan(&scope, items).await?;
        let results: Vec<PlannedResource> = results.into_iter().collect::<Result<_, _>>()?;
        let (stack, secrets) = (&self.plan.scope.stack, &self.plan.secrets);
        let planned = results.into_iter().zip(nodes).map(|(mut planned, node)| {
            let wanted = node.wanted.as_ref();
            secret_masking::hide(&lock(&self.carried), stack, &mut planned, wanted, secrets);
            interrupted_replacement::as_approved_replacement(&self.plan.begun, stack, planned, secrets)
        });
        Ok(planned.collect())
    }

    /// Plans resources again whose values were unknown and are known now. The new plan must pass the review and is
    /// recorded in the journal before anything is changed.
    async fn plan_again(&self, nodes: &[&PlanNode]) -> Result<Vec<PlannedResource>, UserError> {
        let planned = self.replan(nodes).await?;
        let mut intents = Vec::new();
        for (planned, node) in planned.iter().zip(nodes) {
            let owner =
                |planned: &PlannedResource| planned.foreign.as_ref().map(|foreign| foreign.owner.clone());
            // The claims of other stacks were looked up for the owner in the first plan. Nobody asked whether the new
            // owner releases the object, so the apply must not take it.
            if let Some(foreign) = &planned.foreign
                && owner(planned) != owner(&node.planned)
            {
                return Err(foreign.refusal.clone());
            }
            if planned.public.action != Action::Unchanged {
                let late = LatePlan {
                    shown: &planned.public,
                    truth: Some(&planned.truth),
                    secrets: &self.plan.secrets,
                };
                self.request.review.check(late).await?;
            }
            intents.extend(self.intent(planned, &node.depends_on));
        }
        if !intents.is_empty() {
            self.journal(self.request.journal.intend(intents).await)?;
        }
        Ok(planned)
    }

    /// Finishes a resource without a change in the infrastructure: only its record may change.
    async fn record_result(&self, planned: PlannedResource, node: &PlanNode) -> Result<(), UserError> {
        let id = &planned.item.id;
        match (&planned.recorded, planned.public.action) {
            (_, Action::Forget) => {
                let entry = JournalEntry::Gone { id: id.clone() };
                self.record(entry).await?;
                // The notes say why the live object stays. Without a note the object was already gone, and nothing is
                // reported.
                let notes = planned.public.notes.join("\n");
                let stays = (!notes.is_empty()).then_some(notes);
                self.note(id, Action::Forget, ResourceResult::Done, stays);
            }
            (Some(recorded), _) => {
                let recorded = with_dependencies(recorded, &node.depends_on);
                if node.provisional {
                    lock(&self.written).insert(id.clone(), recorded.clone());
                }
                if planned.item.prior.as_ref() != Some(&recorded) {
                    self.record(JournalEntry::Done { recorded }).await?;
                }
            }
            (None, _) => {}
        }
        lock(&self.carried).learn(planned.sensitive);
        self.store_live(&planned.item.id, planned.expected);
        Ok(())
    }

    /// Stores the live value of a resource if references read it.
    fn store_live(&self, id: &ResourceId, live: Option<Value>) {
        if let Some(live) = live.filter(|_| self.plan.scope.read.contains(id)) {
            lock(&self.live).insert(id.clone(), live);
        }
    }

    /// Records an entry in the journal. An error ends the run.
    pub(super) async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure> {
        let recorded = self.request.journal.record(entry).await;
        if let Err(failure) = &recorded {
            self.stop((*failure.error).clone());
        }
        recorded
    }

    /// Ends the run on an error of the journal: what cannot be recorded must not be done.
    fn journal<T>(&self, result: Result<T, UserError>) -> Result<T, UserError> {
        if let Err(failure) = &result {
            self.stop(failure.clone());
        }
        result
    }
}

/// Returns true if the runtime has work to do for a resource. A runtime that applies whole batches gets all members; of
/// single resources only those that change or are not ready yet.
fn is_work(planned: &PlannedResource, node: &PlanNode) -> bool {
    match node.granularity {
        Granularity::Segment => true,
        Granularity::Resource => {
            planned.unready || !matches!(planned.public.action, Action::Unchanged | Action::Forget)
        }
    }
}

/// One resource of a batch.
struct BatchMember<'w> {
    action: Action,
    node: &'w PlanNode,
    replacement: Option<Replacement>,
}

/// Receives the results of a runtime and records them in the journal.
struct JournalSink<'w> {
    walk: &'w Executor<'w>,
    unit: HashMap<ResourceId, BatchMember<'w>>,
    ended: Mutex<HashSet<ResourceId>>,
    /// The last message of each resource, because a runtime that polls reports the same message again and again.
    last_progress: Mutex<HashMap<ResourceId, String>>,
}

impl JournalSink<'_> {
    async fn done(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        let entry = self.done_entry(id, recorded);
        self.record(entry).await
    }

    fn done_entry(&self, id: &ResourceId, mut recorded: Recorded) -> JournalEntry {
        let node = self.unit.get(id).map(|member| member.node);
        if let Some(node) = node.filter(|node| node.refers) {
            let (wanted, secrets) = (node.wanted.as_ref(), &self.walk.plan.secrets);
            lock(&self.walk.carried).hide_recorded(&mut recorded, wanted, secrets);
        }
        let depends_on = node.map(|node| node.depends_on.as_slice()).unwrap_or_default();
        let recorded = with_dependencies(&recorded, depends_on);
        lock(&self.walk.written).insert(id.clone(), recorded.clone());
        JournalEntry::Done { recorded }
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), UserError> {
        Ok(self.walk.record(entry).await?)
    }
}

#[async_trait]
impl ApplySink for JournalSink<'_> {
    fn progress(&self, id: &ResourceId, message: &str) {
        let last = lock(&self.last_progress).insert(id.clone(), message.to_owned());
        if last.as_deref() == Some(message) {
            return;
        }
        self.walk.request.events.event(RunEvent::ResourceProgress {
            stack: self.walk.plan.public.id.clone(),
            id: id.clone(),
            message: self.walk.plan.secrets.mask(message),
        });
    }

    async fn record_written(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        self.done(id, recorded).await
    }

    async fn record_run(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        let entry = self.done_entry(id, recorded);
        self.walk
            .journal(self.walk.request.journal.intend(vec![entry]).await)
    }

    async fn replacing(&self, id: &ResourceId) -> Result<(), UserError> {
        let member = self.unit.get(id);
        let Some(replacement) = member.and_then(|member| member.replacement.clone()) else {
            return Ok(());
        };
        let id = id.clone();
        self.record(JournalEntry::Begun { id, replacement }).await
    }

    async fn absent(&self, id: &ResourceId) -> Result<(), UserError> {
        self.record(JournalEntry::Gone { id: id.clone() }).await
    }

    async fn record_result(
        &self,
        id: &ResourceId,
        result: Result<AppliedResource, UserError>,
    ) -> Result<(), UserError> {
        let Some(BatchMember { action, .. }) = self.unit.get(id) else {
            return Err(UserError::new(
                ErrorKind::Internal,
                format!("internal error: the runtime reported `{id}`, which was not requested"),
            ));
        };
        lock(&self.ended).insert(id.clone());
        let journalled = match &result {
            Ok(AppliedResource {
                recorded: Some(recorded),
                ..
            }) => self.done(id, recorded.clone()).await,
            Ok(_) => self.record(JournalEntry::Gone { id: id.clone() }).await,
            Err(_) => self.record(JournalEntry::Failed { id: id.clone() }).await,
        };
        let unchanged = *action == Action::Unchanged;
        match result {
            Ok(applied) => {
                lock(&self.walk.carried).learn(applied.sensitive);
                self.walk.store_live(id, applied.live);
                match applied.waiting {
                    Some((waiting, why)) => self.walk.wait(id, *action, waiting, why),
                    None if !unchanged => self.walk.note(id, *action, ResourceResult::Done, None),
                    None => {}
                }
            }
            Err(failure) => self.walk.fail(id, *action, &failure),
        }
        journalled
    }

    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), RecordFailure> {
        lock(&self.walk.data).insert(key.to_owned(), value.clone());
        let entry = JournalEntry::Runtime {
            key: key.to_owned(),
            value,
        };
        self.walk.record(entry).await
    }

    fn cancelled(&self) -> bool {
        self.walk.is_cancelled()
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        self.walk.journal(self.walk.request.journal.check_lease().await)
    }
}
