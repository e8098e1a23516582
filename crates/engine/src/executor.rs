//! Executes a plan in dependency order with bounded parallelism. Every result is written to the journal.

mod failed_hooks;
mod missing;
mod unit;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard},
};

use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Journal, Publication, Review, apply_order, engine_plan::EnginePlan, plan_failures, schedule::Schedule,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        apply_result::{ResourceOutcome, ResourceResult, StackOutcome, StackResult, Waiting},
        authorization::Authorization,
        event::{EventSink, RunEvent},
        plan::Action,
        spec::RuntimeKind,
        state::{JournalEntry, Recorded},
    },
};
use konverge_secrets::PropagatedSecrets;

/// The input of an apply.
pub struct ApplyRequest<'a> {
    /// The plan that is applied.
    pub plan: EnginePlan,
    /// Reviews the plans that become known only during the apply. The plan itself was reviewed before.
    pub review: &'a dyn Review,
    /// Records intents and results.
    pub journal: &'a dyn Journal,
    /// Receives the progress.
    pub events: &'a dyn EventSink,
    /// Stops new operations; running operations finish.
    pub cancel: CancellationToken,
    /// The maximum number of resources or batches in progress, including those that wait for readiness; at
    /// least 1.
    pub parallelism: usize,
    /// Allows the deletion of a whole stack whose Spec has become empty.
    pub allow_empty: bool,
}

/// The prefix of the failure message of a resource that could not be planned.
const NOT_PLANNED: &str = "could not be planned";

/// The prefix of the failure message if the end of an apply could not be checked.
const NOT_CHECKED: &str = "everything was applied, but the check that it still exists failed";

/// The result of the apply of one stack.
pub struct Applied {
    /// The result of the stack, with those of its resources.
    pub outcome: StackOutcome,
    /// The resources that no longer exist although every operation succeeded: somebody deleted or recreated them after
    /// they were planned or written. If there are any, the outcome is a failure; a new plan creates them again.
    pub missing: Vec<ResourceId>,
    /// The outputs that the stack publishes, if everything succeeded.
    pub outputs: Option<Publication>,
}

impl Applied {
    fn stopped(plan: &EnginePlan, refusal: UserError) -> Self {
        Self {
            outcome: outcome(plan, StackResult::Stopped, Vec::new(), Some(refusal)),
            missing: Vec::new(),
            outputs: None,
        }
    }
}

/// Executes a plan. Completed changes are in the journal, whatever the outcome.
pub async fn apply(request: ApplyRequest<'_>) -> Applied {
    let ApplyRequest { plan, .. } = &request;
    if let Some(refusal) = refusal(&request) {
        return Applied::stopped(plan, refusal);
    }
    // A node that depends on a failed resource is not applied, so it gets no intent in the journal either.
    let may_go = plan.nodes.iter().filter(|node| node.held.is_none());
    let changing = may_go
        .clone()
        .filter(|n| n.planned.public.action != Action::Unchanged)
        .count();
    request.events.event(RunEvent::ApplyStarted {
        stack: plan.public.id.clone(),
        resources: changing,
    });
    let walk = Executor {
        request: &request,
        plan,
        live: Mutex::default(),
        carried: Mutex::default(),
        outcomes: Mutex::default(),
        written: Mutex::default(),
        data: Mutex::new(plan.scope.data.clone()),
        failures: Mutex::default(),
        waits: Mutex::default(),
        stopped: Mutex::default(),
    };
    // All intents are stored before the first change: after a kill the next run looks up what may exist.
    let mut intents: Vec<_> = may_go
        .filter(|node| !node.provisional)
        .filter_map(|node| walk.intent(&node.planned, &node.depends_on))
        .collect();
    // The identities of the clusters are stored with the intents, so that the next run notices if a context of the
    // kubeconfig leads to another cluster.
    match walk.cluster_identities(changing).await {
        Ok(identities) => intents.extend(identities),
        Err(failure) => return Applied::stopped(plan, failure),
    }
    if !intents.is_empty()
        && let Err(failure) = request.journal.intend(intents).await
    {
        return Applied::stopped(plan, failure);
    }
    // From here on errors do not end the apply early: the outcome must also report the work that succeeded.
    walk.run().await;
    let missing = walk.find_missing().await;
    walk.finish(changing, missing)
}

fn refusal(request: &ApplyRequest<'_>) -> Option<UserError> {
    let plan = &request.plan;
    if let Some(refusal) = &plan.refusal {
        return Some(refusal.clone());
    }
    (plan.empties_stack && !request.allow_empty).then(|| {
        let what = match plan.nodes.len() {
            1 => "its only resource".to_owned(),
            count => format!("all its {count} resources"),
        };
        UserError::new(
            ErrorKind::Policy,
            format!(
                "the Spec of `{}` is empty, so {what} would be deleted",
                plan.public.id
            ),
        )
        .hint("if that is intended: `konverge apply --allow-empty`, or `konverge destroy`")
    })
}

fn outcome(
    plan: &EnginePlan,
    result: StackResult,
    resources: Vec<ResourceOutcome>,
    failure: Option<UserError>,
) -> StackOutcome {
    StackOutcome {
        stack: plan.public.stack.clone(),
        id: plan.public.id.clone(),
        result,
        digest: plan.public.digest,
        serial: None,
        grounds: Authorization::default(),
        waiting: None,
        resources,
        error: failure.map(|mut failure| {
            failure.message = plan.secrets.mask(&failure.message);
            failure.body()
        }),
    }
}

/// The execution of a plan's batches; shared by the futures that apply them.
struct Executor<'a> {
    request: &'a ApplyRequest<'a>,
    plan: &'a EnginePlan,
    /// The live values that references read.
    live: Mutex<HashMap<ResourceId, Value>>,
    /// The secrets in the values of `live`.
    carried: Mutex<PropagatedSecrets>,
    outcomes: Mutex<BTreeMap<ResourceId, ResourceOutcome>>,
    /// The records that differ from those of the plan, because the resource was written or planned again.
    written: Mutex<HashMap<ResourceId, Recorded>>,
    data: Mutex<BTreeMap<String, Value>>,
    failures: Mutex<BTreeMap<ResourceId, UserError>>,
    /// The event that each written resource waits for, if it happens outside the cluster (such as a promotion).
    waits: Mutex<BTreeMap<ResourceId, Waiting>>,
    /// The failure that ended the run: no further change may start.
    stopped: Mutex<Option<UserError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}

impl<'a> Executor<'a> {
    async fn run(&self) {
        let apply_order::Batches { units, waits } =
            apply_order::group(&self.plan.nodes, &self.plan.scope.hooks);
        // A resource that could not be planned never starts, and its dependents are skipped now. The rest is applied,
        // so that one failure does not hold back independent resources.
        let mut schedule = Schedule::new(&waits);
        self.hold_back(&units, &mut schedule);
        let mut running = FuturesUnordered::new();
        let limit = self.request.parallelism.max(1);
        loop {
            while running.len() < limit && !self.is_cancelled() {
                let Some(unit) = schedule.start() else { break };
                // The barrier between the desired resources and the deletions has no resources: it only orders them.
                if units[unit].members.is_empty() {
                    schedule.done(unit);
                    continue;
                }
                let members = &units[unit].members;
                running.push(async move { (unit, self.carry_out(members).await) });
            }
            // Running batches always finish, even after a cancellation: an abandoned write would leave the journal
            // without its result.
            let Some((unit, succeeded)) = running.next().await else {
                break;
            };
            if succeeded {
                schedule.done(unit);
                continue;
            }
            let blame = self.first_failed(&units[unit].members);
            for skipped in schedule.mark_failed(unit) {
                self.skip(&units[skipped].members, &blame);
            }
        }
        let why = if lock(&self.stopped).is_some() {
            "the run stopped"
        } else {
            "the run was interrupted"
        };
        for left in schedule.remaining() {
            self.skip(&units[left].members, why);
        }
        // `failed` hooks are not in the schedule: only when everything else has ended is it known whether something
        // failed.
        let unused = self.run_failed_hooks().await;
        self.withdraw(unused).await;
    }

    /// Withdraws the intents of skipped resources and of `unused` hooks, so that the next run does not assume that they
    /// may exist.
    async fn withdraw(&self, unused: Vec<ResourceId>) {
        // Without this, a live object whose adoption was skipped would count as applied by this stack, and a later run
        // could delete it.
        let mut ids: Vec<_> = lock(&self.outcomes)
            .values()
            .filter(|outcome| outcome.result == ResourceResult::Skipped)
            .map(|outcome| outcome.id.clone())
            .collect();
        ids.extend(unused);
        if !ids.is_empty() {
            // A failure has ended the run already.
            let _ = self.record(JournalEntry::Untouched { ids }).await;
        }
    }

    /// Reports the resources that could not be planned, and skips their dependents.
    fn hold_back(&self, units: &[apply_order::Batch], schedule: &mut Schedule) {
        for (id, failure) in &self.plan.failures {
            let failure = failure.clone().context(NOT_PLANNED);
            self.fail(id, Action::Unknown, &failure);
        }
        let why = |failed: &ResourceId| format!("`{failed}` could not be planned");
        for (id, failed) in &self.plan.waiting {
            let message = Some(format!("not tried: {}", why(failed)));
            self.note(id, Action::Unknown, ResourceResult::Skipped, message);
        }
        // The schedule needs to know every skipped batch before the first batch starts, so that no dependent becomes
        // ready.
        let mut left_out = BTreeMap::new();
        for (unit, members) in units.iter().map(|unit| &unit.members).enumerate() {
            let mut holders = members.iter().filter_map(|&n| self.plan.nodes[n].held.as_ref());
            if let Some(failed) = holders.next() {
                for unit in schedule.mark_failed(unit).into_iter().chain([unit]) {
                    left_out.entry(unit).or_insert_with(|| why(failed));
                }
            }
        }
        for (unit, why) in left_out {
            self.skip(&units[unit].members, &why);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.request.cancel.is_cancelled() || lock(&self.stopped).is_some()
    }

    fn first_failed(&self, members: &[usize]) -> String {
        let outcomes = lock(&self.outcomes);
        let is_failed = |id: &&ResourceId| {
            let outcome = outcomes.get(*id);
            outcome.is_some_and(|outcome| outcome.result != ResourceResult::Done)
        };
        let mut ids = members.iter().map(|&n| &self.plan.nodes[n].planned.item.id);
        let failed = ids.find(is_failed);
        let waits = lock(&self.waits);
        failed.map_or_else(
            || "an earlier resource failed".to_owned(),
            |id| match waits.get(id) {
                Some(waiting) => format!("`{id}` {waiting}"),
                None => format!("`{id}` failed"),
            },
        )
    }

    fn skip(&self, members: &[usize], why: &str) {
        for &member in members {
            let node = &self.plan.nodes[member];
            if node.planned.public.action == Action::Unchanged && !node.provisional {
                continue;
            }
            let message = if node.is_deletion {
                format!("not deleted: {why}")
            } else {
                format!("not tried: {why}")
            };
            self.note(
                &node.planned.item.id,
                node.planned.public.action,
                ResourceResult::Skipped,
                Some(message),
            );
        }
    }

    /// Records and reports the result of a resource.
    fn note(&self, id: &ResourceId, action: Action, result: ResourceResult, message: Option<String>) {
        let message = message.map(|text| self.plan.secrets.mask(&text));
        self.request.events.event(RunEvent::ResourceEnded {
            stack: self.plan.public.id.clone(),
            id: id.clone(),
            result,
            message: message.clone(),
        });
        let is_written = || action != Action::Unchanged && lock(&self.written).contains_key(id);
        let outcome = ResourceOutcome {
            id: id.clone(),
            action,
            result,
            written: result == ResourceResult::Failed && is_written(),
            message,
            is_stack_error: false,
        };
        lock(&self.outcomes).insert(id.clone(), outcome);
    }

    /// Reports a resource that is written and waits for an event outside the cluster, such as a promotion.
    fn wait(&self, id: &ResourceId, action: Action, waiting: Waiting, why: String) {
        lock(&self.waits).insert(id.clone(), waiting);
        self.note(id, action, ResourceResult::Waiting, Some(why));
    }

    fn fail(&self, id: &ResourceId, action: Action, failure: &UserError) {
        lock(&self.failures).insert(id.clone(), failure.clone());
        let hints = failure.hints.iter().map(|hint| format!("; {hint}"));
        let message = format!("{failure}{}", hints.collect::<String>());
        self.note(id, action, ResourceResult::Failed, Some(message));
    }

    /// Returns the intent to record before a resource is changed; `None` for a resource without a change.
    fn intent(
        &self,
        planned: &crate::runtime::PlannedResource,
        depends_on: &[ResourceId],
    ) -> Option<JournalEntry> {
        let action = planned.public.action;
        if matches!(action, Action::Unchanged | Action::Forget) {
            return None;
        }
        let recorded = planned.recorded.as_ref().or(planned.item.prior.as_ref())?;
        Some(JournalEntry::Intent {
            recorded: with_dependencies(recorded, depends_on),
            action,
        })
    }

    /// Returns the cluster identities to record in the state; `None` if nothing changes or they are already recorded.
    async fn cluster_identities(&self, changing: usize) -> Result<Option<JournalEntry>, UserError> {
        let clusters = self
            .plan
            .nodes
            .iter()
            .filter_map(|node| node.planned.public.cluster.clone());
        let clusters: BTreeSet<_> = clusters.collect();
        if changing == 0 || clusters.is_empty() {
            return Ok(None);
        }
        let runtime = self.plan.runtimes.get(RuntimeKind::Kubernetes)?;
        let identities = runtime.to_remember(&self.plan.scope, &clusters).await?;
        Ok(identities.map(|(key, value)| JournalEntry::Runtime { key, value }))
    }

    fn stop(&self, failure: UserError) {
        lock(&self.stopped).get_or_insert(failure);
    }

    fn finish(self, changing: usize, missing: Result<Vec<ResourceId>, UserError>) -> Applied {
        let published = self.publish();
        let (missing, unchecked) = match missing {
            Ok(missing) => (missing, None),
            Err(failure) => (Vec::new(), Some(failure.context(NOT_CHECKED))),
        };
        let lost = unchecked.or_else(|| self.missing_failure(&missing));
        let mut outcomes = std::mem::take(&mut *lock(&self.outcomes));
        let stopped = lock(&self.stopped).take();
        let interrupted = self.request.cancel.is_cancelled();
        let failures = std::mem::take(&mut *lock(&self.failures));
        let is_bad = |result| matches!(result, ResourceResult::Failed | ResourceResult::Skipped);
        let bad = outcomes.values().any(|outcome| is_bad(outcome.result));
        let waits = std::mem::take(&mut *lock(&self.waits));
        let waiting = waits.into_values().reduce(Waiting::or_later);
        let unplanned = || Some(plan_failures::combine_failures(&self.plan.failures)?.context(NOT_PLANNED));
        // The failure of the stack is one error, the most basic first. An error of the journal ended the run, so
        // everything else may be only its consequence.
        let mut mark = |id: &ResourceId| {
            if let Some(outcome) = outcomes.get_mut(id) {
                outcome.is_stack_error = true;
            }
        };
        let failure = if let Some(stopped) = stopped {
            Some(stopped)
        } else if let Some(unplanned) = unplanned() {
            self.plan.failures.iter().for_each(|(id, _)| mark(id));
            Some(unplanned)
        } else if let Some((id, failure)) = failures.into_iter().next() {
            mark(&id);
            Some(plan_failures::of_resource(&id, failure))
        } else {
            (bad && interrupted).then(|| {
                UserError::new(
                    ErrorKind::Interrupted,
                    "interrupted; completed work is recorded, and the next run continues",
                )
            })
        };
        // Resources that disappeared are the reported failure only if there is no other failure. The caller then plans
        // once more, and that plan creates them again.
        let failure = failure.or(lost);
        // Outputs of a partial apply would mix old and new values, so they are published only after a complete one.
        let ended_well = failure.is_none() && waiting.is_none() && !bad;
        let outputs = ended_well.then_some(published);
        let refused = outputs.iter().flat_map(|outputs| outputs.refused.values()).next();
        let failure = failure.or(refused.cloned());
        let result = match (&failure, waiting, changing, bad) {
            (Some(_), ..) => StackResult::Failed,
            // This case comes before `bad`: the skipped resources only wait for others, so nothing failed.
            (None, Some(_), ..) => StackResult::Waiting,
            (None, None, _, true) => StackResult::Failed,
            (None, None, 0, false) => StackResult::Unchanged,
            (None, None, _, false) => StackResult::Applied,
        };
        Applied {
            outcome: StackOutcome {
                waiting,
                ..outcome(self.plan, result, outcomes.into_values().collect(), failure)
            },
            missing,
            outputs,
        }
    }

    /// Returns the values that the stack publishes, as far as its resources are applied.
    fn publish(&self) -> Publication {
        self.plan.outputs.values(
            &self.plan.targets,
            &lock(&self.live),
            &lock(&self.carried),
            &self.plan.secrets,
        )
    }
}

fn with_dependencies(recorded: &Recorded, depends_on: &[ResourceId]) -> Recorded {
    Recorded {
        depends_on: depends_on.to_vec(),
        ..recorded.clone()
    }
}
