//! `apply`: stack by stack in their order, each under its lease, with its journal, and only what was agreed to.

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

/// Who agrees to a stack's plan before anything of it is touched.
#[async_trait]
pub trait Approver: Send + Sync {
    /// On what grounds. An error stops the stack.
    async fn stack(&self, plan: &StackPlan, past: &PriorState) -> Result<Authorization, UserError>;

    /// A resource whose values became known only on the way.
    async fn resource(&self, stack: &StackId, plan: &ResourcePlan) -> Result<(), UserError>;
}

/// What its state says of a stack.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews it has used up.
    pub used: BTreeSet<u64>,
    /// Nothing of it was ever applied, or nothing is left of it.
    pub is_new: bool,
    /// The commit that was applied last, if it is on record.
    pub commit: Option<CommitId>,
    /// What was written last, secrets as keyed hashes.
    pub last_writes: LastWrites,
}

/// Whether a stack has a newer commit than the one that is to be applied.
#[async_trait]
pub trait Newer: Send + Sync {
    /// Of the state with this serial, which these commits were applied to or tried on.
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> bool;
}

/// How to apply.
pub struct ApplyOptions {
    /// Who agrees.
    pub consent: Arc<dyn Approver>,
    /// Which stacks are left as they are, because a newer commit was applied to them.
    pub newer: Option<Arc<dyn Newer>>,
    /// The commit that is applied, if it is one.
    pub commit: Option<CommitId>,
    /// Merged pull requests whose reviews are used up by a stack that ends well, also those that did not show it: it holds
    /// all that they brought. What is previewed of them later, in a share that was late or a job that was started
    /// again, was before nobody's eyes when they were merged, and agrees to nothing.
    pub pull_requests: Vec<u64>,
    /// What was applied last is put back: a stack whose recorded inputs are no longer these is stopped, since another
    /// run has applied something else meanwhile.
    pub restore: bool,
    /// A stack whose Spec has become empty may be deleted whole. Removed stacks always may: their review says so.
    pub allow_empty: bool,
    /// The serial that is put back, if it is one: the history says so.
    pub rolled_back_to: Option<u64>,
}

/// Applies the targets. Stacks that do not depend on each other go side by side.
///
/// # Errors
/// The order of the stacks has a cycle. Whatever goes wrong with a stack is in its outcome.
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
    // The index may lag behind: missing entries are looked up.
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

/// Nothing of a stack was touched, and why.
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

/// Nothing of the stack was touched, because of this.
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
    // A lease that cannot be given back expires by itself; the result is what counts.
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
                // What somebody may agree to.
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
        // The next run takes the stack up again.
        state.input_digest = None;
    }
    let used = if well {
        options.pull_requests.as_slice()
    } else {
        &[]
    };
    outcome.digest = public.digest;
    // A failure is on record once, not once for each try that came to the same.
    let receipt = lease.prior().and_then(|prior| prior.receipt.as_ref());
    let told = receipt.is_some_and(|told| (told.digest, told.result) == (outcome.digest, outcome.result));
    let reason = match (&target.head, options.rolled_back_to) {
        (None, _) => WriteReason::Destroy,
        (Some(_), Some(_)) => WriteReason::Rollback,
        (Some(_), None) => WriteReason::Apply,
    };
    // Of what was never applied nothing is recorded because it was destroyed.
    let never_there = reason == WriteReason::Destroy && lease.prior().is_none() && state.resources.is_empty();
    // Where nothing was done, another commit that wants the same is no news.
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

/// The state as it becomes, and the journal of the lease.
struct ApplyJournal<'a> {
    lease: &'a Lease,
    followed: tokio::sync::Mutex<StackState>,
    unstored: tokio::sync::Mutex<Unstored>,
}

/// A runtime's data that the store has not taken after this long is kept in a file meanwhile.
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

/// Agrees with everything: whoever started the run said so.
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

/// Whether every stack ended well.
pub fn ended_well(report: &ApplyReport) -> bool {
    report.stacks.iter().all(|stack| is_well(stack.result))
}

/// Whether a stack is now as its head wants it.
pub fn is_well(result: StackResult) -> bool {
    matches!(result, StackResult::Applied | StackResult::Unchanged)
}

/// The gravest of what happened, by the exit codes of the reference: failed before stopped before held by a lease.
pub fn exit_code(report: &ApplyReport, interrupted: bool) -> u8 {
    if interrupted {
        return ErrorKind::Interrupted.exit_code();
    }
    let code = |outcome: &StackOutcome| match (outcome.result, &outcome.error) {
        (StackResult::Applied | StackResult::Unchanged, _) => 0,
        (StackResult::Stopped, Some(error)) => error.kind.exit_code(),
        // Whatever held it back has a code of its own.
        (StackResult::HeldBack, _) => 0,
        _ => 1,
    };
    let codes: Vec<u8> = report.stacks.iter().map(code).collect();
    [1, 3, 4]
        .into_iter()
        .find(|code| codes.contains(code))
        .unwrap_or(0)
}
