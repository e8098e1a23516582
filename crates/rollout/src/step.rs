//! The next step of a rollout: apply, wait, advance the record, roll back, or nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use konverge_base::model::{
    Digest, StackId,
    apply_result::WaitReason,
    rollout::{ClockReading, RolloutPhase, RolloutRecord},
};

use super::{
    elapsed::{ElapsedTime, elapsed},
    next_plans::NextPlans,
    overdue::bakes_until,
    rules::{RolloutRules, WaveRules},
};

/// The maximum time for which a stack may be unready after the bake. After that the rollout stops.
const READY_DEADLINE: Duration = Duration::from_secs(3600);

/// Facts about a rollout that this run has looked up.
#[derive(Debug, Clone)]
pub struct RolloutFacts<'a> {
    /// The rules as they are configured now; `None` if the rollout is no longer configured.
    pub rules: Option<&'a RolloutRules>,
    /// The stacks that do not have the rollout's commit yet; during a rollback, the stacks that do not have their
    /// earlier content again.
    pub pending: &'a BTreeSet<StackId>,
    /// The stacks whose apply failed in this run, with the reasons.
    pub failed: &'a BTreeMap<StackId, String>,
    /// The stacks whose plan differs from the approved one. This run applied nothing to them.
    pub changed: &'a BTreeSet<StackId>,
    /// Readiness of the stacks of the current wave; `None` if this run did not check. A stack is missing if this
    /// run cannot reach it: the job of its environment checks it.
    pub health: Option<&'a BTreeMap<StackId, StackReadiness>>,
    /// Readings of the gates of the current wave. A missing gate was not evaluated.
    pub gates: &'a BTreeMap<String, GateReading>,
    /// The plans of the next wave that this run made; `None` if no gate needs them for an approval. Jobs of other
    /// environments make the remaining plans.
    pub planned: Option<&'a BTreeMap<StackId, Digest>>,
    /// The current time by all clocks.
    pub now: ClockReading,
    /// The time since this process itself wrote the record of the phase, by its monotonic clock.
    pub watched: Option<Duration>,
}

/// Readiness of the objects of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackReadiness {
    /// All objects are ready.
    Ready,
    /// Some objects are not ready, or their readiness is unknown.
    Unready(String),
    /// Some objects failed.
    Failed(String),
}

/// The result of evaluating a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateReading {
    /// The gate passes.
    Pass(String),
    /// Somebody approved this digest, which covers the plans of the next wave.
    Approved(Digest),
    /// The gate does not pass.
    Fail(String),
    /// The gate is neither passed nor failed: no number, too little traffic, or no response.
    Unclear(String),
    /// Nobody has approved yet.
    Unapproved(String),
}

/// The reason why a rollout waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutWait {
    /// The event that ends the wait.
    pub reason: WaitReason,
    /// The time at which the wait ends by itself, if that is known.
    pub until: Option<Timestamp>,
    /// The reason for the wait, as a sentence for people.
    pub why: String,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutStep {
    /// Apply these stacks of the current wave.
    Apply {
        /// The stacks of the wave that do not have the commit.
        stacks: BTreeSet<StackId>,
        /// The maximum number of these stacks that are applied at the same time. Those that `after` orders still
        /// wait for each other.
        at_once: usize,
    },
    /// Roll these stacks back to their earlier content.
    RollBack(BTreeSet<StackId>),
    /// Write this record. The rollout has not advanced until it is written.
    Advance(Box<RolloutRecord>),
    /// Wait; a later run decides again.
    Wait(RolloutWait),
    /// Do nothing until a person resumes or aborts the rollout.
    Hold,
    /// Do nothing: the rollout has ended.
    End,
}

/// Decides the next step of a rollout.
pub fn step(record: &RolloutRecord, seen: &RolloutFacts<'_>) -> RolloutStep {
    match record.phase {
        RolloutPhase::Done | RolloutPhase::Aborted => return RolloutStep::End,
        RolloutPhase::Stopped => return RolloutStep::Hold,
        RolloutPhase::RollingBack => return roll_back(record, seen),
        RolloutPhase::Applying | RolloutPhase::Baking | RolloutPhase::Gate => {}
    }
    let rules = seen.rules.filter(|rules| rules.digest == record.rules);
    let wave_rules = rules.and_then(|rules| rules.waves.get(record.wave));
    let (Some(rules), Some(wave)) = (rules, wave_rules) else {
        return advance(RolloutRecord {
            phase: RolloutPhase::Stopped,
            since: seen.now,
            why: EDITED.to_owned(),
            ..record.clone()
        });
    };
    if record.paused {
        return wait(WaitReason::Resume, None, "the rollout is paused".to_owned());
    }
    let running = RunningWave {
        record,
        seen,
        rules,
        wave,
    };
    match record.phase {
        RolloutPhase::Applying => running.apply(),
        RolloutPhase::Baking => running.bake(),
        _ => running.ask_gates(),
    }
}

/// The reason of a stop because the configured rules changed since the rollout began.
const EDITED: &str = "konverge.yaml has other rules for this rollout than at its start";

fn wait(reason: WaitReason, until: Option<Timestamp>, why: String) -> RolloutStep {
    RolloutStep::Wait(RolloutWait { reason, until, why })
}

fn advance(record: RolloutRecord) -> RolloutStep {
    RolloutStep::Advance(Box::new(record))
}

fn stop(record: &RolloutRecord, seen: &RolloutFacts<'_>, rolls_back: bool, why: String) -> RolloutStep {
    advance(RolloutRecord {
        phase: if rolls_back {
            RolloutPhase::RollingBack
        } else {
            RolloutPhase::Stopped
        },
        since: seen.now,
        why,
        measured: measured(seen),
        held: record.held.iter().cloned().chain(record.contents()).collect(),
        ..record.clone()
    })
}

/// Returns the readings of the gates that were evaluated, as text.
fn measured(seen: &RolloutFacts<'_>) -> BTreeMap<String, String> {
    let said = seen.gates.iter().map(|(name, reading)| {
        let said = match reading {
            GateReading::Pass(said) | GateReading::Fail(said) | GateReading::Unclear(said) => said.clone(),
            GateReading::Unapproved(said) => said.clone(),
            GateReading::Approved(_) => "approved".to_owned(),
        };
        (name.clone(), said)
    });
    said.collect()
}

fn names<'a>(stacks: impl Iterator<Item = &'a StackId>) -> String {
    stacks.map(StackId::as_str).collect::<Vec<_>>().join(", ")
}

fn roll_back(record: &RolloutRecord, seen: &RolloutFacts<'_>) -> RolloutStep {
    let stacks = || record.failing().map(|(id, _)| id);
    let failed = stacks().find_map(|id| Some((id, seen.failed.get(id)?)));
    // A failed rollback is not repeated. The rollout stops, so that a person looks at the stacks.
    if let Some((id, why)) = failed {
        let why = format!("{}; {id} was not rolled back: {why}", record.why);
        return stop(record, seen, false, why);
    }
    let todo = stacks().filter(|id| seen.pending.contains(*id));
    let todo: BTreeSet<_> = todo.cloned().collect();
    if todo.is_empty() {
        stop(
            record,
            seen,
            false,
            format!("{}; its stacks are rolled back", record.why),
        )
    } else {
        RolloutStep::RollBack(todo)
    }
}

/// Reasons why a wave is not known to be ready.
enum Unready {
    /// This run has seen an unready stack.
    Seen(String),
    /// A stack of the wave can be checked only by the job of another environment.
    Unseen(String),
}

/// The current wave of a running rollout.
struct RunningWave<'a> {
    record: &'a RolloutRecord,
    seen: &'a RolloutFacts<'a>,
    rules: &'a RolloutRules,
    wave: &'a WaveRules,
}

impl RunningWave<'_> {
    fn apply(&self) -> RolloutStep {
        let failed = self
            .record
            .current()
            .find_map(|id| Some((id, self.seen.failed.get(id)?)));
        // Failures come first: after one, nothing more of the wave may be applied.
        if let Some((id, why)) = failed {
            return self.fail(format!("the apply of {id} failed: {why}"));
        }
        if let Some(step) = self.ask_again() {
            return step;
        }
        let size = self.record.current().count();
        let at_once = self.wave.at_once.map_or(size, |at_once| at_once.of(size));
        let stacks: BTreeSet<_> = self.todo().cloned().collect();
        if stacks.is_empty() {
            self.enter(RolloutPhase::Baking, "")
        } else {
            RolloutStep::Apply { stacks, at_once }
        }
    }

    fn bake(&self) -> RolloutStep {
        if let Some(step) = self.regression() {
            return step;
        }
        // A wave without stacks has nothing to observe, so it passes the bake at once.
        let bake = match self.record.current().count() {
            0 => Duration::ZERO,
            _ => self.wave.bake,
        };
        let passed = match self.elapsed() {
            ElapsedTime::AtLeast(passed) => passed,
            ElapsedTime::Unknown if bake.is_zero() => Duration::ZERO,
            ElapsedTime::Unknown => {
                return self.enter(
                    RolloutPhase::Baking,
                    "the clocks do not agree, so the bake begins again",
                );
            }
        };
        if passed < bake {
            return wait(
                WaitReason::Time,
                bakes_until(self.record, self.rules),
                format!("{} bakes", self.record.wave_title()),
            );
        }
        // The time is over, but the wave passes only when all its stacks are known to be ready. Until then this run
        // records its own readings, because another job may have to decide with them.
        let ready = self.ready();
        match self.unready() {
            None => advance(RolloutRecord {
                phase: RolloutPhase::Gate,
                since: self.seen.now,
                why: String::new(),
                ready,
                unready_since: BTreeMap::new(),
                ..self.record.clone()
            }),
            Some(Unready::Seen(why)) if self.is_unready_too_long() => {
                self.fail(format!("not ready after the bake: {why}"))
            }
            Some(_) if (self.sees_a_part() && ready != self.record.ready) || self.saw_a_change() => {
                self.note(ready, self.record.planned.clone(), self.record.why.clone())
            }
            Some(Unready::Seen(why) | Unready::Unseen(why)) => {
                wait(WaitReason::Gate, None, format!("after the bake: {why}"))
            }
        }
    }

    fn ask_gates(&self) -> RolloutStep {
        if let Some(step) = self.regression() {
            return step;
        }
        let passed = match self.elapsed() {
            ElapsedTime::AtLeast(passed) => passed,
            ElapsedTime::Unknown => {
                return self.enter(
                    RolloutPhase::Gate,
                    "the clocks do not agree, so the deadline begins again",
                );
            }
        };
        let ready = self.ready();
        if !self.record.ready.is_subset(&ready) {
            // The recorded readiness is outdated. Without this write, another job would still trust it and let the
            // wave pass.
            return self.note(ready, self.record.planned.clone(), self.record.why.clone());
        }
        let next = NextPlans::new(self.record, self.seen.planned);
        // A gate that fails, or has no result at its deadline, fails the wave at once. All other readings are
        // collected, so that the message names everything that the rollout waits for.
        let mut approvals = BTreeSet::new();
        let mut waits = Vec::new();
        for gate in &self.wave.gates {
            let name = &gate.name;
            match self.seen.gates.get(name) {
                Some(GateReading::Pass(_)) => {}
                Some(GateReading::Approved(digest)) if next.approval(self.record, name) == Some(*digest) => {
                    approvals.insert(*digest);
                }
                Some(GateReading::Approved(_)) => waits.push((
                    WaitReason::Approval,
                    format!("gate `{name}`: the approval is for other plans than the present ones"),
                )),
                Some(GateReading::Fail(why)) => {
                    return self.fail(format!("gate `{name}` does not pass: {why}"));
                }
                Some(GateReading::Unclear(why)) => {
                    if gate.deadline.is_some_and(|deadline| passed > deadline) {
                        return self.fail(format!(
                            "gate `{name}` had no clear result until its deadline: {why}"
                        ));
                    }
                    waits.push((WaitReason::Gate, format!("gate `{name}`: {why}")));
                }
                Some(GateReading::Unapproved(why)) => {
                    if gate.deadline.is_some_and(|deadline| passed > deadline) {
                        return self.fail(format!("nobody approved at gate `{name}` until its deadline"));
                    }
                    waits.push((WaitReason::Approval, format!("gate `{name}`: {why}")));
                }
                None => waits.push((
                    WaitReason::Gate,
                    format!("gate `{name}` was not evaluated by this run"),
                )),
            }
        }
        // The objects may have become unready while the rollout waited for its gates.
        match self.unready() {
            None => {}
            Some(Unready::Seen(why)) if self.is_unready_too_long() => {
                return self.fail(format!("no longer ready: {why}"));
            }
            Some(Unready::Seen(why) | Unready::Unseen(why)) => waits.push((WaitReason::Gate, why)),
        }
        let reason = waits.iter().map(|(reason, _)| *reason).min();
        match reason {
            None => self.next_wave(next, approvals),
            // Changed facts are recorded before waiting: the digest to approve and the other jobs depend on them.
            Some(_)
                if ready != self.record.ready
                    || next.digests != self.record.planned
                    || self.saw_a_change() =>
            {
                let changed = names(next.changed(self.record));
                let why = if changed.is_empty() {
                    self.record.why.clone()
                } else {
                    format!(
                        "the plan of {changed} has changed: an approval of the earlier plans does not count"
                    )
                };
                self.note(ready, next.digests, why)
            }
            Some(reason) => {
                let before = Some(self.record.why.clone()).filter(|why| !why.is_empty());
                let why: Vec<_> = waits.into_iter().map(|(_, why)| why).chain(before).collect();
                wait(reason, None, why.join("; "))
            }
        }
    }

    /// Returns the stacks of the wave that do not have the commit.
    fn todo(&self) -> impl Iterator<Item = &StackId> {
        self.record.current().filter(|id| self.seen.pending.contains(*id))
    }

    /// Returns a step back if a stack of the wave lost the commit, or fails the rollout if objects of a stack
    /// failed.
    fn regression(&self) -> Option<RolloutStep> {
        if self.todo().next().is_some() {
            return Some(self.enter(
                RolloutPhase::Applying,
                "the commit is no longer applied to a stack of the wave",
            ));
        }
        self.record
            .current()
            .find_map(|id| match self.seen.health?.get(id)? {
                StackReadiness::Failed(why) => Some(self.fail(format!("{id} failed after its apply: {why}"))),
                StackReadiness::Ready | StackReadiness::Unready(_) => None,
            })
    }

    /// Returns the reason why the wave is not known to be ready; `None` if all its stacks are.
    fn unready(&self) -> Option<Unready> {
        let Some(health) = self.seen.health else {
            let id = self.record.current().next()?;
            return Some(Unready::Unseen(format!("the readiness of {id} was not checked")));
        };
        let mut unseen = None;
        for id in self.record.current() {
            match health.get(id) {
                Some(StackReadiness::Ready) => {}
                Some(StackReadiness::Unready(why) | StackReadiness::Failed(why)) => {
                    return Some(Unready::Seen(format!("{id} is not ready: {why}")));
                }
                None if self.record.ready.contains(id) => {}
                None => {
                    unseen.get_or_insert(id);
                }
            }
        }
        unseen.map(|id| Unready::Unseen(format!("the job of its environment must report {id} as ready")))
    }

    /// Returns the ready stacks of the wave: by the check of this run, or else as another job recorded them.
    fn ready(&self) -> BTreeSet<StackId> {
        let is_ready = |id: &&StackId| match self.seen.health.and_then(|health| health.get(*id)) {
            Some(readiness) => *readiness == StackReadiness::Ready,
            None => self.record.ready.contains(*id),
        };
        self.record.current().filter(is_ready).cloned().collect()
    }

    /// Returns when each unready stack was first seen unready. Seeing the stack ready removes its entry.
    fn unready_since(&self) -> BTreeMap<StackId, ClockReading> {
        let mut since = BTreeMap::new();
        for id in self.record.current() {
            let known = self.record.unready_since.get(id).copied();
            let began = match self.seen.health.and_then(|health| health.get(id)) {
                Some(StackReadiness::Ready) => None,
                None => known,
                Some(_) => match known.map(|began| elapsed(&began, &self.seen.now, None)) {
                    None | Some(ElapsedTime::Unknown) => Some(self.seen.now),
                    Some(ElapsedTime::AtLeast(_)) => known,
                },
            };
            since.extend(began.map(|began| (id.clone(), began)));
        }
        since
    }

    /// Returns true if this run saw a stack become ready or unready.
    fn saw_a_change(&self) -> bool {
        self.unready_since() != self.record.unready_since
    }

    /// Returns true if a stack that this run sees unready has been unready for longer than [`READY_DEADLINE`].
    fn is_unready_too_long(&self) -> bool {
        let is_seen = |id: &StackId| {
            let readiness = self.seen.health.and_then(|health| health.get(id));
            readiness.is_some_and(|readiness| *readiness != StackReadiness::Ready)
        };
        self.record.unready_since.iter().any(|(id, began)| {
            let passed = elapsed(began, &self.seen.now, None);
            is_seen(id) && matches!(passed, ElapsedTime::AtLeast(passed) if passed > READY_DEADLINE)
        })
    }

    /// Returns true if this run cannot check all stacks of the wave.
    fn sees_a_part(&self) -> bool {
        let is_seen = |id: &StackId| self.seen.health.is_some_and(|health| health.contains_key(id));
        !self.record.current().all(is_seen)
    }

    /// Records the ready stacks and the plans of the next wave for the other jobs. The phase does not change.
    fn note(&self, ready: BTreeSet<StackId>, planned: BTreeMap<StackId, Digest>, why: String) -> RolloutStep {
        advance(RolloutRecord {
            ready,
            planned,
            why,
            unready_since: self.unready_since(),
            ..self.record.clone()
        })
    }

    /// Returns the rollout to the gate before the wave if a plan differs from the approved one. That is no failure,
    /// but nothing more is applied.
    fn ask_again(&self) -> Option<RolloutStep> {
        let before = self.record.wave.checked_sub(1)?;
        let changed = names(self.record.current().filter(|id| self.seen.changed.contains(*id)));
        (!changed.is_empty()).then(|| {
            advance(RolloutRecord {
                wave: before,
                phase: RolloutPhase::Gate,
                since: self.seen.now,
                why: format!("the approval is no longer valid: the plan of {changed} has changed"),
                approved: self.record.other_approvals(),
                planned: BTreeMap::new(),
                ready: BTreeSet::new(),
                unready_since: BTreeMap::new(),
                ..self.record.clone()
            })
        })
    }

    fn elapsed(&self) -> ElapsedTime {
        elapsed(&self.record.since, &self.seen.now, self.seen.watched)
    }

    fn enter(&self, phase: RolloutPhase, why: &str) -> RolloutStep {
        advance(RolloutRecord {
            phase,
            since: self.seen.now,
            why: why.to_owned(),
            ready: match phase {
                RolloutPhase::Gate => self.record.ready.clone(),
                _ => BTreeSet::new(),
            },
            planned: BTreeMap::new(),
            unready_since: BTreeMap::new(),
            ..self.record.clone()
        })
    }

    fn fail(&self, why: String) -> RolloutStep {
        stop(self.record, self.seen, self.rules.rolls_back, why)
    }

    fn next_wave(&self, plans: NextPlans, approvals: BTreeSet<Digest>) -> RolloutStep {
        let next = self.record.wave + 1;
        let is_last = next == self.rules.waves.len();
        let wave = if is_last { self.record.wave } else { next };
        let mut approved = self.record.approved.clone();
        if !approvals.is_empty() {
            approved.extend(plans.digests);
        }
        advance(RolloutRecord {
            wave,
            phase: if is_last {
                RolloutPhase::Done
            } else {
                RolloutPhase::Applying
            },
            since: self.seen.now,
            why: String::new(),
            approved,
            approvals: &self.record.approvals | &approvals,
            planned: BTreeMap::new(),
            begun_waves: self.record.begun_waves.max(wave + 1),
            ready: BTreeSet::new(),
            unready_since: BTreeMap::new(),
            held: if is_last {
                self.record.held_without_own()
            } else {
                self.record.held.clone()
            },
            measured: measured(self.seen),
            ..self.record.clone()
        })
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
