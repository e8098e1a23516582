//! The `apply` use case: applies the stacks in order, each with its lease and journal, and only approved
//! plans.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream::FuturesUnordered};

use super::{
    Planner, Target, TargetPlan, lease_wait::HolderWatch, redact, rescue::Unstored, stack_order::StackOrder,
    state,
};
use crate::{
    engine::{self, ApplyRequest, Journal, Review},
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, StackId,
        apply_record::{ApplyRecord, Authorization},
        apply_result::{ApplyReport, StackOutcome, StackResult},
        plan::{ResourcePlan, StackPlan},
        spec::Spec,
        state::{JournalEntry, StackState},
    },
    policy::LastWrites,
    state::{Lease, LeaseOptions, WriteReason},
};

/// Approves the plan of a stack before anything is changed.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns who authorized the plan. An error stops the stack.
    async fn stack(&self, plan: &StackPlan, past: &PriorState) -> Result<Authorization, UserError>;

    /// Approves a resource whose values became known only during the apply.
    async fn resource(&self, stack: &StackId, plan: &ResourcePlan) -> Result<(), UserError>;
}

/// What the state says about a stack.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews it has used.
    pub used: BTreeSet<u64>,
    /// True if the stack was never applied, or has no resources left.
    pub is_new: bool,
    /// The last applied commit, if it is recorded.
    pub commit: Option<CommitId>,
    /// The last written values, with secrets as keyed hashes.
    pub last_writes: LastWrites,
}

/// Checks whether a newer commit than the current one was applied to a stack.
#[async_trait]
pub trait Newer: Send + Sync {
    /// Checks the state with this serial, which these commits were applied to or attempted on.
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> bool;
}

/// The options of an apply.
pub struct ApplyOptions {
    /// Approves the plans.
    pub consent: Arc<dyn Approver>,
    /// Selects the stacks to skip because a newer commit was applied to them.
    pub newer: Option<Arc<dyn Newer>>,
    /// The commit that is applied, if there is one.
    pub commit: Option<CommitId>,
    /// The merged pull requests whose reviews a successful stack uses, including those that did not show the
    /// stack: it now contains all of their changes. A preview of them that is recorded later (by a late shard
    /// or a re-run job) was not visible when they were merged, so it authorizes nothing.
    pub pull_requests: Vec<u64>,
    /// Restore what was applied last. A stack with other recorded inputs is stopped, because another run has
    /// applied something else in the meantime.
    pub restore: bool,
    /// Allows the deletion of a whole stack whose Spec has become empty. Removed stacks may always be
    /// deleted, because their review says so.
    pub allow_empty: bool,
    /// The serial that is restored, for the history.
    pub rolled_back_to: Option<u64>,
}

/// Applies the targets. Independent stacks are applied concurrently.
///
/// # Errors
/// The order of the stacks has a cycle. Errors of a stack are in its outcome.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    options: &ApplyOptions,
) -> Result<ApplyReport, UserError> {
    let config = &planning.config;
    let leaving = targets.iter().filter(|target| target.head.is_none());
    let leaving = leaving.map(|target| target.id.clone()).collect();
    let order = StackOrder::build(config, targets)?.taking_down(&leaving);
    let at_once = config.apply.stacks.map_or(4, |n| n.max(1) as usize);

    let mut waiting: BTreeMap<&StackId, &Target> =
        targets.iter().map(|target| (&target.id, target)).collect();
    let mut failed: BTreeSet<StackId> = BTreeSet::new();
    let mut ended: BTreeSet<StackId> = BTreeSet::new();
    let mut outcomes = Vec::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        let ready: Vec<_> = waiting
            .keys()
            .filter(|id| order.before(id).all(|first| ended.contains(first)))
            .map(|id| (*id).clone())
            .collect();
        for id in ready {
            let held_by: Vec<_> = order
                .before(&id)
                .filter(|first| failed.contains(*first))
                .cloned()
                .collect();
            if held_by.is_empty() && under_way.len() >= at_once {
                continue;
            }
            let Some(target) = waiting.remove(&id) else {
                continue;
            };
            if held_by.is_empty() {
                under_way.push(async move { one(planning, target, options).await });
            } else {
                failed.insert(id.clone());
                ended.insert(id);
                outcomes.push(skipped_outcome(target, &held_by));
            }
        }
        match under_way.next().await {
            Some(outcome) => {
                if !is_well(outcome.result) {
                    failed.insert(outcome.id.clone());
                }
                ended.insert(outcome.id.clone());
                outcomes.push(outcome);
            }
            None if waiting.is_empty() => break,
            None => {}
        }
    }
    // The index may be outdated: entries that were not written are looked up.
    if let Some(memory) = &planning.memory
        && let Err(error) = memory.states.settle().await
    {
        planning
            .run
            .notes
            .note(&format!("warning: could not update the state index: {error}"));
    }
    outcomes.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let mut report = ApplyReport {
        version: 1,
        stacks: outcomes,
    };
    redact::report(&mut report, planning.secrets());
    Ok(report)
}

fn skipped_outcome(target: &Target, by: &[StackId]) -> StackOutcome {
    let names = by.iter().map(StackId::as_str).collect::<Vec<_>>().join(", ");
    let failure = UserError::new(
        ErrorKind::Policy,
        format!("skipped: {names} comes before it and failed"),
    );
    stopped_outcome(target, StackResult::HeldBack, &failure)
}

/// The outcome of a stack that was not changed, and why.
pub(super) fn stopped_outcome(target: &Target, result: StackResult, failure: &UserError) -> StackOutcome {
    StackOutcome {
        stack: target.folder.clone(),
        id: target.id.clone(),
        result,
        digest: Digest::of_set([]),
        serial: None,
        grounds: Authorization::default(),
        resources: Vec::new(),
        error: Some(failure.body()),
    }
}

async fn one(planning: &Planner, target: &Target, options: &ApplyOptions) -> StackOutcome {
    match apply_stack(planning, target, options).await {
        Ok(outcome) => outcome,
        Err(failure) => not_started(target, &failure),
    }
}

/// The outcome of a stack that was not changed because of this error.
fn not_started(target: &Target, failure: &UserError) -> StackOutcome {
    let result = match failure.kind {
        ErrorKind::Unreviewed | ErrorKind::Policy | ErrorKind::LeaseHeld => StackResult::Stopped,
        _ => StackResult::Failed,
    };
    stopped_outcome(target, result, failure)
}

async fn apply_stack(
    planning: &Planner,
    target: &Target,
    options: &ApplyOptions,
) -> Result<StackOutcome, UserError> {
    planning.run.check_interrupted()?;
    let wanted = planning.spec(target).await?;
    let input_digest = planning.input_digest(target)?;
    planning.run.begin_writes()?;
    let memory = planning.memory.as_ref().ok_or_else(|| {
        UserError::new(ErrorKind::Config, "there is no store to keep the state in")
            .hint("set `state.url` in konverge.yaml")
    })?;
    let config = &planning.config.state.lease;
    let lease_options = LeaseOptions {
        term: config.term.duration(),
        wait: config.wait.duration(),
        folder: target.folder.clone(),
        watch: Some(Arc::new(HolderWatch::new(&planning.run, &target.id))),
        ..LeaseOptions::default()
    };
    if let Some(earlier) = planning.earlier_identity(&target.id).await? {
        state::move_waiting(memory, &earlier, &target.id, lease_options.clone()).await?;
        planning.run.notes.note(&format!(
            "note: what was recorded of `{earlier}` moved along: the stack in `{}` is `{}` now",
            target.folder, target.id
        ));
    }
    let lease = memory.states.acquire(&target.id, lease_options).await?;
    let result = under_lease(planning, target, options, wanted, input_digest, &lease).await;
    // A lease that cannot be released expires by itself; the result matters more.
    if let Err(error) = lease.release().await {
        planning.run.notes.note(&format!(
            "warning: the lease of {} could not be given back: {error}",
            target.id
        ));
    }
    result
}

async fn under_lease(
    planning: &Planner,
    target: &Target,
    options: &ApplyOptions,
    wanted: Spec,
    input_digest: Option<Digest>,
    lease: &Lease,
) -> Result<StackOutcome, UserError> {
    let empty = || StackState::empty(target.id.clone(), target.folder.clone());
    let recorded = lease.prior().map_or_else(empty, |prior| prior.state.clone());
    let mut prior = recorded.clone();
    let taken_up = planning.take_up_rescue(&mut prior)?;
    if taken_up {
        planning.run.notes.note(&format!(
            "note: what an earlier run of {} made and could not store is taken up",
            target.id
        ));
    }
    if options.restore && prior.input_digest != input_digest {
        return Err(UserError::new(
            ErrorKind::Policy,
            format!("{} was applied anew meanwhile: nothing is put back", target.id),
        ));
    }
    if let (Some(newer), Some(there)) = (&options.newer, lease.prior())
        && newer.has_newer(&target.id, there.serial, &there.commits()).await
    {
        return Ok(StackOutcome {
            stack: target.folder.clone(),
            id: target.id.clone(),
            result: StackResult::Unchanged,
            digest: Digest::of_set([]),
            serial: Some(there.serial),
            grounds: Authorization::default(),
            resources: Vec::new(),
            error: None,
        });
    }
    let spec_digest = wanted.digest();
    let TargetPlan::Live(plan) = planning.plan_from(target, wanted, &prior).await? else {
        return Err(UserError::new(
            ErrorKind::Config,
            format!("no cluster is configured for `{}`", target.id),
        )
        .hint("name one under `clusters` in konverge.yaml, or give `--kubeconfig FILE`"));
    };
    if let Some(refusal) = plan.refusal() {
        return Err(refusal);
    }
    let past = PriorState {
        used: lease
            .prior()
            .map(|prior| prior.applied_reviews.clone())
            .unwrap_or_default(),
        is_new: prior.resources.is_empty() && prior.input_digest.is_none(),
        commit: prior.commit.clone(),
        last_writes: last_writes(&prior),
    };
    let public = plan.public.clone();
    let grounds = match options.consent.stack(&public, &past).await {
        Ok(grounds) => grounds,
        Err(refusal) => {
            return Ok(StackOutcome {
                // The digest of what can be approved.
                digest: public.digest,
                ..not_started(target, &refusal)
            });
        }
    };
    let journal = ApplyJournal {
        lease,
        followed: tokio::sync::Mutex::new(prior.clone()),
        unstored: tokio::sync::Mutex::new(Unstored::new(
            planning.rescue(&target.id),
            recorded.runtime.clone(),
            taken_up,
        )),
    };
    let review = ConsentReview {
        consent: options.consent.as_ref(),
        stack: &target.id,
    };
    let mut outcome = engine::apply(ApplyRequest {
        plan: *plan,
        review: &review,
        journal: &journal,
        events: planning.run.events.as_ref(),
        cancel: planning.run.cancel.clone(),
        parallelism: planning.config.apply.resources.map_or(16, |n| n.max(1) as usize),
        allow_empty: options.allow_empty || target.head.is_none(),
    })
    .await;
    let mut state = journal.followed.into_inner();
    let mut unstored = journal.unstored.into_inner();
    state.folder = target.folder.clone();
    state.named_by = target
        .head
        .as_ref()
        .map(|stack| stack.named_by)
        .unwrap_or_default();
    let well = is_well(outcome.result);
    if well {
        state.earlier_identities.clear();
        state.input_digest = input_digest;
        state.spec_digest = Some(spec_digest);
        state.commit = options.commit.clone();
        state.core = planning.core().map(str::to_owned);
    } else {
        // The next run applies the stack again.
        state.input_digest = None;
    }
    let used = if well {
        options.pull_requests.as_slice()
    } else {
        &[]
    };
    outcome.digest = public.digest;
    // A failure is recorded once, not for each attempt with the same result.
    let receipt = lease.prior().and_then(|prior| prior.receipt.as_ref());
    let told = receipt.is_some_and(|told| (told.digest, told.result) == (outcome.digest, outcome.result));
    let reason = match (&target.head, options.rolled_back_to) {
        (None, _) => WriteReason::Destroy,
        (Some(_), Some(_)) => WriteReason::Rollback,
        (Some(_), None) => WriteReason::Apply,
    };
    // Destroying a stack that was never applied records nothing.
    let never_there = reason == WriteReason::Destroy && lease.prior().is_none() && state.resources.is_empty();
    // Without changes, another commit with the same desired resources is not recorded.
    let commit = state.commit.clone();
    if outcome.result == StackResult::Unchanged {
        state.commit.clone_from(&recorded.commit);
    }
    let is_same = state == recorded;
    state.commit = commit;
    let nothing_new = (is_same || never_there) && used.is_empty() && (well || told);
    outcome.grounds = grounds;
    outcome.serial = match nothing_new {
        true => lease.prior().map(|prior| prior.serial),
        false => {
            let receipt = ApplyRecord {
                digest: outcome.digest,
                commit: options.commit.clone(),
                result: outcome.result,
                grounds: outcome.grounds.clone(),
            };
            let note = options
                .rolled_back_to
                .map(|to| format!("rolled back to serial {to}"));
            let concluded = lease.conclude(reason, state, used, receipt, note).await;
            match concluded {
                Ok(serial) => {
                    unstored.all_stored();
                    Some(serial)
                }
                Err(error) => {
                    outcome.result = StackResult::Failed;
                    outcome.error.get_or_insert_with(|| UserError::from(error).body());
                    None
                }
            }
        }
    };
    if let (Some(error), Some(hint)) = (&mut outcome.error, unstored.hint()) {
        error.hints.push(hint);
    }
    Ok(outcome)
}

fn last_writes(state: &StackState) -> LastWrites {
    let resources = state.resources.iter();
    resources
        .map(|recorded| (recorded.id.clone(), Arc::clone(&recorded.attributes)))
        .collect()
}

/// The state during the apply, and the journal of the lease.
struct ApplyJournal<'a> {
    lease: &'a Lease,
    followed: tokio::sync::Mutex<StackState>,
    unstored: tokio::sync::Mutex<Unstored>,
}

/// A runtime's data that the store has not accepted after this time is kept in a file in the meantime.
const LATE: Duration = Duration::from_secs(1);

#[async_trait]
impl Journal for ApplyJournal<'_> {
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError> {
        let mut followed = self.followed.lock().await;
        entries.iter().for_each(|entry| followed.follow(entry));
        drop(followed);
        Ok(self.lease.journal(entries).await?)
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), UserError> {
        self.followed.lock().await.follow(&entry);
        let JournalEntry::Runtime { key, value } = &entry else {
            return Ok(self.lease.journal(vec![entry]).await?);
        };
        let key = key.clone();
        self.unstored.lock().await.begin_store(&key, value);
        let mut storing = std::pin::pin!(self.lease.journal(vec![entry]));
        let result = match tokio::time::timeout(LATE, &mut storing).await {
            Ok(result) => result,
            Err(_) => {
                self.unstored.lock().await.keep();
                storing.await
            }
        };
        let mut unstored = self.unstored.lock().await;
        match &result {
            Ok(()) => unstored.end_store(&key),
            Err(_) => unstored.keep(),
        }
        Ok(result?)
    }

    async fn fence(&self) -> Result<(), UserError> {
        Ok(self.lease.check()?)
    }
}

struct ConsentReview<'a> {
    consent: &'a dyn Approver,
    stack: &'a StackId,
}

#[async_trait]
impl Review for ConsentReview<'_> {
    async fn check(&self, plan: &ResourcePlan) -> Result<(), UserError> {
        self.consent.resource(self.stack, plan).await
    }
}

/// Approves everything: the user confirmed on the command line.
pub struct AutoApprove;

#[async_trait]
impl Approver for AutoApprove {
    async fn stack(&self, _: &StackPlan, _: &PriorState) -> Result<Authorization, UserError> {
        Ok(Authorization::default())
    }

    async fn resource(&self, _: &StackId, _: &ResourcePlan) -> Result<(), UserError> {
        Ok(())
    }
}

/// Returns true if every stack succeeded.
pub fn ended_well(report: &ApplyReport) -> bool {
    report.stacks.iter().all(|stack| is_well(stack.result))
}

/// Returns true if the stack is up to date.
pub fn is_well(result: StackResult) -> bool {
    matches!(result, StackResult::Applied | StackResult::Unchanged)
}

/// The exit code of the most severe result: failed before stopped before held by a lease.
pub fn exit_code(report: &ApplyReport, interrupted: bool) -> u8 {
    if interrupted {
        return ErrorKind::Interrupted.exit_code();
    }
    let code = |outcome: &StackOutcome| match (outcome.result, &outcome.error) {
        (StackResult::Applied | StackResult::Unchanged, _) => 0,
        (StackResult::Stopped, Some(error)) => error.kind.exit_code(),
        // The stack that it depends on has a code of its own.
        (StackResult::HeldBack, _) => 0,
        _ => 1,
    };
    let codes: Vec<u8> = report.stacks.iter().map(code).collect();
    [1, 3, 4]
        .into_iter()
        .find(|code| codes.contains(code))
        .unwrap_or(0)
}
