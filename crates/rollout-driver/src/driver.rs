//! Drives the rollouts of a job: reads a record, does the next step, writes the next record, until no step is possible
//! now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    approval::{ApprovalGate, OwnPlans},
    carried_commit::{CarriedCommit, OlderCommit},
    gates,
    job::RolloutJob,
    readiness::readiness,
    records::RolloutRecords,
};
use konverge_base::{
    error::UserError,
    interrupt::Interrupt,
    model::{
        CommitId, Digest, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult, WaitReason},
        rollout::{ClockReading, RolloutPhase, RolloutRecord},
    },
    spans,
};
use konverge_config::{Config, RolloutConfig};
use konverge_rollout::{
    GateReading, NextPlans, RolloutEvent, RolloutFacts, RolloutRules, RolloutStep, RolloutWait,
    StackReadiness, carries, held_outcome, held_stacks, step, waiting_outcome,
};
use konverge_run::{
    StateBackend, Target,
    apply::{self, Decisions},
};
use konverge_state::StoredRollout;

/// The total time that a job waits for bake times.
const IN_JOB: Duration = Duration::from_secs(15 * 60);
/// The maximum number of steps of one rollout in a job.
const MOST_STEPS: usize = 10_000;

/// The result of all rollouts in a job.
#[derive(Default)]
pub struct EndedRollouts {
    /// One outcome for each stack that was applied, or that is pending and must wait.
    pub outcomes: Vec<StackOutcome>,
    /// The stacks among the outcomes that got an older commit than the head, so that they are still pending for the
    /// head.
    pub of_older_commits: BTreeSet<StackId>,
    /// The stacks among the outcomes whose deployment belongs to an older commit.
    pub deployed_before: BTreeSet<StackId>,
    /// The commits of the rollouts that are still under way.
    pub carried: BTreeSet<CommitId>,
    /// The decisions about the plans of the stacks.
    pub decisions: Decisions,
    /// The events of rollouts that stopped.
    pub events: Vec<RolloutEvent>,
    /// The stacks among the outcomes that this run did not try, and about which there is no news.
    pub kept_back: BTreeSet<StackId>,
    /// The reason why each waiting rollout waits, as a sentence.
    pub waits: Vec<String>,
}

/// Drives every rollout as far as possible now. `guarded` are the pending stacks of each rollout, each with the number
/// of its wave from 0. `succeeded` are the stacks outside of rollouts that this run applied.
/// An error of a rollout is in the outcomes of its stacks.
pub async fn run(
    job: &RolloutJob<'_>,
    head: CarriedCommit<'_>,
    records: &RolloutRecords,
    guarded: &BTreeMap<String, Vec<(usize, Target)>>,
    succeeded: BTreeSet<StackId>,
) -> EndedRollouts {
    let config = &head.planning.config;
    let Some(backend) = head
        .planning
        .backend
        .as_ref()
        .filter(|_| !config.rollouts.is_empty())
    else {
        return EndedRollouts::default();
    };
    let mut ended = EndedRollouts::default();
    let stored = match &records.0 {
        Ok(stored) => stored,
        // An error of rollouts fails their stacks but not the whole apply, because the other stacks are applied
        // already.
        Err(failure) => {
            let targets = guarded.values().flatten().map(|(_, target)| target);
            let failed = targets.map(|target| apply::stopped_outcome(target, StackResult::Failed, failure));
            ended.outcomes.extend(failed);
            return ended;
        }
    };
    // All rollouts share one time limit for bake times, so that the job ends in time whatever the number of rollouts
    // is.
    let mut budget = IN_JOB;
    for rollout in &config.rollouts {
        let pending = guarded.get(&rollout.name).map_or(&[][..], Vec::as_slice);
        let mut driver = RolloutDriver {
            job,
            head,
            config,
            backend,
            rollout,
            rules: RolloutRules::from_config(rollout, &config.gates),
            pending,
            succeeded: &succeeded,
            first: stored.get(&rollout.name).map_or(0, |stored| stored.number),
            looked_up: stored.get(&rollout.name).map_or(0, |stored| stored.number),
            stored: stored.get(&rollout.name).cloned(),
            older: None,
            wrote: None,
            asks: false,
            budget: &mut budget,
            had: BTreeMap::new(),
            failed: BTreeMap::new(),
            changed: BTreeSet::new(),
            own_plans: None,
            outcomes: BTreeMap::new(),
            decisions: Decisions::default(),
            events: Vec::new(),
            wait: None,
        };
        let failure = driver.drive().await.err();
        driver.end(failure.as_ref(), &mut ended).await;
    }
    ended
}

/// Returns what a gate asks people to approve now: the plans of the next wave, in this phase. `None` if the rollout is
/// paused or not at a gate, or if a stack of the wave has no plan yet.
fn question(record: &RolloutRecord) -> Option<(&CommitId, usize, ClockReading, &BTreeMap<StackId, Digest>)> {
    let asks = record.phase == RolloutPhase::Gate && !record.paused;
    let is_whole = asks && NextPlans::new(record, None).missing.is_empty();
    is_whole.then_some((&record.commit, record.wave, record.since, &record.planned))
}

/// Drives one rollout in a job.
pub(super) struct RolloutDriver<'a> {
    pub(super) job: &'a RolloutJob<'a>,
    pub(super) head: CarriedCommit<'a>,
    pub(super) config: &'a Config,
    pub(super) backend: &'a StateBackend,
    pub(super) rollout: &'a RolloutConfig,
    pub(super) rules: RolloutRules,
    /// The pending stacks of the rollout at the head of the run.
    pub(super) pending: &'a [(usize, Target)],
    pub(super) succeeded: &'a BTreeSet<StackId>,
    pub(super) stored: Option<StoredRollout>,
    /// The number of the rollout record before the run listed its pending stacks.
    pub(super) first: u64,
    /// The number of the rollout record when the pending stacks were last compared with the states.
    pub(super) looked_up: u64,
    pub(super) older: Option<OlderCommit<'a>>,
    /// The number and the time of the last record that this run wrote.
    pub(super) wrote: Option<(u64, Instant)>,
    /// True if this run made the rollout ask people something new.
    pub(super) asks: bool,
    pub(super) budget: &'a mut Duration,
    /// The commit that this run applied to each stack.
    pub(super) had: BTreeMap<StackId, CommitId>,
    pub(super) failed: BTreeMap<StackId, String>,
    /// The stacks whose plan differs from the approved one.
    pub(super) changed: BTreeSet<StackId>,
    pub(super) own_plans: Option<OwnPlans>,
    pub(super) outcomes: BTreeMap<StackId, StackOutcome>,
    pub(super) decisions: Decisions,
    pub(super) events: Vec<RolloutEvent>,
    pub(super) wait: Option<RolloutWait>,
}

impl RolloutDriver<'_> {
    async fn drive(&mut self) -> Result<(), UserError> {
        // One step per iteration. A new record is read back before the next step, because another run may have written
        // it.
        for _ in 0..MOST_STEPS {
            if self.job.run.cancel.is_cancelled() {
                return Ok(());
            }
            self.wait = None;
            self.follow();
            let goes_on = match self.stored.clone() {
                None => self.begin().await?,
                Some(stored) => match self.next_step(&stored.record).await? {
                    RolloutStep::End | RolloutStep::Hold => self.begin().await?,
                    RolloutStep::Advance(next) => {
                        self.write(*next).await?;
                        true
                    }
                    RolloutStep::Apply { stacks, at_once } => self.apply(&stored, &stacks, at_once).await?,
                    RolloutStep::RollBack(stacks) => self.roll_back(&stored, &stacks).await?,
                    RolloutStep::Wait(wait) => self.sleep(wait).await,
                },
            };
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Updates the digests and plans of this run for the newest record.
    fn follow(&mut self) {
        let Some(StoredRollout { record, .. }) = &self.stored else {
            return;
        };
        self.own_plans.take_if(|own| !own.belongs_to(record));
        // Another job of the workflow may have continued the rollout with a digest that this job got, too. Then the
        // digest must not be reported as unmatched.
        let given = record.approvals.intersection(self.job.given);
        self.decisions.matched.extend(given);
    }

    pub(super) fn now(&self) -> ClockReading {
        ClockReading {
            local: Timestamp::now(),
            server: self.job.forge.server_time(),
        }
    }

    /// Writes the next record, and reads the newest one, which another run may have written first.
    pub(super) async fn write(&mut self, record: RolloutRecord) -> Result<(), UserError> {
        let before = self.stored.take();
        let number = before.as_ref().map_or(1, |stored| stored.number + 1);
        if self.backend.states.write_rollout(number, &record).await? {
            self.wrote = Some((number, Instant::now()));
            let why = match record.why.as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            self.job.run.notes.note(&format!(
                "rollout {}: {} of {}, {}{why}",
                record.rollout,
                record.wave_title(),
                record.commit.short(),
                record.phase
            ));
            let before = before.as_ref().map(|before| &before.record);
            // A run that finds the same question again sends no notification.
            self.asks |= question(&record).is_some_and(|asked| before.and_then(question) != Some(asked));
            self.events
                .extend(before.and_then(|before| RolloutEvent::from_records(before, &record, &self.failed)));
            self.failed.clear();
        }
        self.read_newest(before.as_ref().map(|before| &before.record))
            .await
    }

    /// Reads the newest record. Failures of an earlier phase are dropped in a new phase, because they would fail the
    /// next rollout or the rollback.
    pub(super) async fn read_newest(&mut self, before: Option<&RolloutRecord>) -> Result<(), UserError> {
        self.changed.clear();
        self.stored = self.backend.states.rollout(&self.rollout.name).await?;
        let newest = self.stored.as_ref().map(|stored| &stored.record);
        if !newest
            .zip(before)
            .is_some_and(|(newest, before)| newest.is_in_phase_of(before))
        {
            self.failed.clear();
        }
        Ok(())
    }

    /// Opens a commit, unless it is the head or the older commit that was opened last.
    async fn open_commit(&mut self, commit: &CommitId) -> Result<(), UserError> {
        let is_open =
            commit == self.head.commit || self.older.as_ref().is_some_and(|older| older.commit == *commit);
        if !is_open {
            let policies = self.job.policies;
            self.older = Some(policies.open_commit(commit, self.config, self.backend).await?);
        }
        Ok(())
    }

    pub(super) fn carried(&self, commit: &CommitId) -> CarriedCommit<'_> {
        match &self.older {
            Some(older) if older.commit == *commit => older.as_carried(),
            _ => self.head,
        }
    }

    async fn next_step(&mut self, record: &RolloutRecord) -> Result<RolloutStep, UserError> {
        if record.phase.is_over() || record.phase == RolloutPhase::Stopped {
            return Ok(RolloutStep::Hold);
        }
        self.open_commit(&record.commit).await?;
        let pending = match record.phase {
            RolloutPhase::RollingBack => self.pending_rollback(record).await?,
            _ => self.pending_of(record).await?,
        };
        // The first try has no health and no gates, because only a step that waits for them needs their requests.
        let no_gates = BTreeMap::new();
        let next = step(record, &self.facts(&pending, None, &no_gates));
        if !matches!(&next, RolloutStep::Wait(wait) if wait.reason == WaitReason::Gate) {
            return Ok(next);
        }
        let health = self.health(record).await;
        let gates = match record.phase {
            RolloutPhase::Gate => self.ask_gates(record).await?,
            _ => no_gates,
        };
        Ok(step(record, &self.facts(&pending, Some(&health), &gates)))
    }

    fn facts<'f>(
        &'f self,
        pending: &'f BTreeSet<StackId>,
        health: Option<&'f BTreeMap<StackId, StackReadiness>>,
        gates: &'f BTreeMap<String, GateReading>,
    ) -> RolloutFacts<'f> {
        // The process knows the duration of a phase only if it wrote the newest record itself.
        let number = self.stored.as_ref().map(|stored| stored.number);
        let wrote = self.wrote.filter(|(wrote, _)| Some(*wrote) == number);
        RolloutFacts {
            rules: Some(&self.rules),
            pending,
            failed: &self.failed,
            changed: &self.changed,
            health,
            gates,
            planned: self.own_plans.as_ref().map(|own| &own.digests),
            now: self.now(),
            watched: wrote.map(|(_, at)| at.elapsed()),
        }
    }

    /// Returns the readiness of those stacks of the wave that are in the environment of this job.
    async fn health(&self, record: &RolloutRecord) -> BTreeMap<StackId, StackReadiness> {
        let carried = self.carried(&record.commit);
        let mut health = BTreeMap::new();
        for (id, stack) in record.waves.get(record.wave).into_iter().flatten() {
            let target = carried.target(id, &stack.folder);
            if self.job.scope.covers(&target) {
                health.insert(id.clone(), readiness(carried.planning, &target).await);
            }
        }
        health
    }

    async fn ask_gates(
        &mut self,
        record: &RolloutRecord,
    ) -> Result<BTreeMap<String, GateReading>, UserError> {
        let mut readings = BTreeMap::new();
        let names = self
            .rollout
            .waves
            .get(record.wave)
            .map_or(&[][..], |wave| &wave.gates);
        for name in names {
            let Some(gate) = self.config.gates.get(name) else {
                continue;
            };
            // Only a gate that needs an approval needs the plans of the next wave.
            if gate.approve.is_some() && self.own_plans.is_none() {
                self.own_plans =
                    Some(OwnPlans::make(self.carried(&record.commit), self.job.scope, record).await);
            }
            let reading = match (
                gates::reading(self.job.run, gate).await,
                gate.approve.as_ref().zip(self.own_plans.as_ref()),
            ) {
                (Some(reading), _) => reading,
                (None, Some((approval, own))) => {
                    let gate = ApprovalGate {
                        job: self.job,
                        carried: self.carried(&record.commit),
                        record,
                        name,
                        approval,
                        own,
                    };
                    let (reading, given) = gate.reading().await;
                    self.decisions.matched.extend(given);
                    reading
                }
                (None, None) => continue,
            };
            readings.insert(name.clone(), reading);
        }
        Ok(readings)
    }

    /// Waits for a bake time, if the job has enough time left. Returns true if the bake time is over.
    async fn sleep(&mut self, wait: RolloutWait) -> bool {
        let until = wait.until.filter(|_| wait.reason == WaitReason::Time);
        let left = until.and_then(|until| Duration::try_from(until.duration_since(Timestamp::now())).ok());
        let left = left.unwrap_or(Duration::ZERO).max(Duration::from_secs(1));
        // A wait without an end, or one that is too long, is left to a later run.
        if until.is_none() || left > *self.budget {
            self.wait = Some(wait);
            return false;
        }
        *self.budget -= left;
        let bake = spans::wait("the bake of a rollout");
        Interrupt::new(self.job.run.cancel.clone())
            .pause(left)
            .instrument(bake)
            .await;
        true
    }

    /// Adds the outcomes, events and waits of this rollout to those of the run.
    async fn end(self, failure: Option<&UserError>, ended: &mut EndedRollouts) {
        // Print what the rollout waits for, or why it does not continue.
        let record = self.stored.as_ref().map(|stored| &stored.record);
        if let (Some(record), Some(wait)) = (record, &self.wait) {
            let line = format!("rollout {}: {}", record.rollout, wait.why);
            self.job.run.notes.note(&line);
            ended.waits.push(line);
        }
        if let Some(failure) = failure {
            let failure = konverge_secrets::redact::failure(failure, self.head.planning.secrets());
            let what = format!("the rollout {} does not continue", self.rollout.name);
            self.job.run.warn(&what, failure);
        }
        // Add an outcome for each pending stack that this run did not apply.
        let mut outcomes = self.outcomes;
        // Collect the stacks that wait for the next rollout. Their deployment belongs to the head and not to the older
        // commit.
        let mut queued = BTreeSet::new();
        let mut inputs = BTreeMap::new();
        for (_, target) in self.pending {
            if self.had.get(&target.id) != Some(self.head.commit)
                && let Ok(input) = self.head.planning.input_digest(target)
            {
                inputs.insert(target.id.clone(), input);
            }
        }
        let held = held_stacks(record, &inputs);
        for (_, target) in self.pending {
            let has_head = self.had.get(&target.id) == Some(self.head.commit);
            if has_head || outcomes.contains_key(&target.id) {
                continue;
            }
            let outcome = match (failure, record, self.head.planning.input_digest(target)) {
                (Some(failure), ..) => apply::stopped_outcome(target, StackResult::Failed, failure),
                (None, Some(record), Ok(input)) => {
                    let is_carried = carries(record, &target.id, input);
                    if !is_carried {
                        queued.insert(target.id.clone());
                    }
                    // A change that already failed is reported as such, unless the rollout under way applies it again.
                    let outcome = if held.contains(&target.id) && (!is_carried || record.phase.is_over()) {
                        held_outcome(&target.id, target.folder(), record)
                    } else {
                        waiting_outcome(&target.id, target.folder(), input, record, self.wait.as_ref())
                    };
                    // A new question to people is news, also for stacks that this run did not try.
                    if !(self.asks && outcome.result == StackResult::Waiting) {
                        ended.kept_back.insert(target.id.clone());
                    }
                    outcome
                }
                (None, _, Err(failure)) => apply::stopped_outcome(target, StackResult::Failed, &failure),
                (None, None, Ok(_)) => continue,
            };
            outcomes.insert(target.id.clone(), outcome);
        }
        // Record which outcomes belong to the head, and which to an older commit.
        let older = outcomes
            .keys()
            .filter(|id| self.had.get(*id) != Some(self.head.commit));
        ended.of_older_commits.extend(older.cloned());
        // The queued deployment of a commit whose rollout is still under way must not be retired.
        ended.carried.extend(
            record
                .filter(|record| !record.phase.is_over())
                .map(|record| record.commit.clone()),
        );
        if let Some(older) = &self.older {
            let is_current = record.is_some_and(|record| record.commit == older.commit);
            let is_of_it = |id: &&StackId| match self.had.get(*id) {
                Some(commit) => *commit == older.commit,
                None => is_current && !queued.contains(*id),
            };
            let own: BTreeSet<StackId> = outcomes.keys().filter(is_of_it).cloned().collect();
            let of_it = outcomes.values().filter(|outcome| own.contains(&outcome.id));
            let stacks = of_it.cloned().collect();
            let report = ApplyReport { version: 1, stacks };
            older.reviews.end_deployments(&report).await;
            ended.deployed_before.extend(own);
        }
        ended.outcomes.extend(outcomes.into_values());
        ended.decisions.extend(self.decisions);
        ended.events.extend(self.events);
    }
}
