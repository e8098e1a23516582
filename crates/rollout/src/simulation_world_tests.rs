//! The world of the simulation: what its runs see and do, and what must hold at each of their writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use jiff::Timestamp;
use konverge_base::model::{
    CommitId, Digest, RepoPath, StackId,
    rollout::{ClockReading, RolloutPhase, RolloutRecord, RolloutStack},
};
use konverge_config::AtOnce;

use super::*;

pub(super) const WAVES: usize = 3;
const BAKE: Duration = Duration::from_secs(600);
/// The contents of stacks.
pub(super) type Contents = BTreeSet<(StackId, Option<Digest>)>;
const START: i64 = 1_800_000_000;

fn commit_id(number: usize) -> CommitId {
    format!("{number:040x}").parse().unwrap()
}

pub(super) fn number_of(commit: &CommitId) -> usize {
    usize::from_str_radix(&commit.as_str()[36..], 16).unwrap()
}

/// The last wave has several stacks: it may be half applied when the rollout goes back.
pub(super) fn wave_of(stack: usize) -> usize {
    stack.min(WAVES - 1)
}

/// A stack as it is in the world.
#[derive(Clone, Copy)]
pub(super) struct SimulatedStack {
    /// The commit that changed it last, of what is applied.
    pub(super) version: usize,
    serial: u64,
    /// The true time of the last apply.
    at: i64,
}

/// What a run does next.
pub(super) enum Todo {
    Look,
    Write(u64, Box<RolloutRecord>),
    Apply(u64, Rc<RolloutRecord>, Vec<StackId>),
    RollBack(u64, Rc<RolloutRecord>, Vec<StackId>),
}

/// A run of a commit.
pub(super) struct Run {
    pub(super) head: usize,
    pub(super) todo: Todo,
    pub(super) failed: BTreeMap<StackId, String>,
    /// The record that it saw last.
    pub(super) followed: Option<Rc<RolloutRecord>>,
    pub(super) changed: BTreeSet<StackId>,
    /// The plans that it made at the gate that began then.
    pub(super) planned: Option<(ClockReading, BTreeMap<StackId, Digest>)>,
    /// The digests that were given to it.
    pub(super) given: Vec<Digest>,
    /// The number of the record that this run wrote, and the true time.
    pub(super) wrote: Option<(u64, i64)>,
    /// The job of this environment alone; `None`: it applies and sees every stack.
    pub(super) environment: Option<usize>,
    /// How wrong its clock is, in seconds.
    pub(super) skew: i64,
    pub(super) has_server: bool,
    pub(super) looks: usize,
}

pub(super) struct SimulatedWorld {
    pub(super) seed: u64,
    pub(super) random: Random,
    /// The true time in seconds.
    pub(super) time: i64,
    pub(super) ids: Vec<StackId>,
    /// Of each commit, the commit that changed each stack last.
    pub(super) commits: Vec<[usize; STACKS]>,
    pub(super) applied: Vec<SimulatedStack>,
    /// Of each stack, the version of each serial from 1.
    pub(super) history: Vec<Vec<usize>>,
    pub(super) records: Vec<Rc<RolloutRecord>>,
    pub(super) rules: RolloutRules,
    /// A job for each of this many environments; 1: one job sees all stacks.
    pub(super) environments: usize,
    /// Of each stack, the true time when a job saw it ready, since its last apply.
    pub(super) seen_ready: [Option<i64>; STACKS],
    /// Of each stack, the version that the newest rollout brought to it and did not roll back.
    pub(super) brought: [Option<usize>; STACKS],
    /// Of each commit with which a rollout failed, the contents, until somebody resumes.
    pub(super) undone: BTreeMap<usize, Contents>,
    /// Of each stack, the true time when a job saw it unready first, since its last apply.
    pub(super) seen_unready: [Option<i64>; STACKS],
    pub(super) plans: SimulatedPlans,
    /// The commits of rollouts that began and have not failed since.
    pub(super) allowed: BTreeSet<usize>,
    pub(super) calm: bool,
}

impl SimulatedWorld {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let gate = GateRules {
            name: "slo".to_owned(),
            deadline: Some(Duration::from_secs(900)),
        };
        let approval = GateRules {
            name: APPROVAL.to_owned(),
            deadline: None,
        };
        let asks_people = random.one_in(4);
        let wave = |random: &mut Random| {
            let approval = (asks_people && random.one_in(2)).then(|| approval.clone());
            let measured = random.one_in(2).then(|| gate.clone());
            WaveRules {
                at_once: random.one_in(2).then_some(AtOnce::Percent(50)),
                bake: BAKE,
                gates: measured.into_iter().chain(approval).collect(),
            }
        };
        let rules = RolloutRules {
            digest: Digest::of_bytes(b"rules"),
            waves: (0..WAVES).map(|_| wave(&mut random)).collect(),
            rolls_back: random.one_in(2),
        };
        // An approval is asked again if the plan of another environment has changed.
        let environments = if asks_people && !random.one_in(4) {
            2
        } else {
            1 + random.below(2)
        };
        let first = SimulatedStack {
            version: 0,
            serial: 1,
            at: START,
        };
        Self {
            seed,
            random,
            time: START,
            ids: (0..STACKS)
                .map(|at| format!("s{at}/prod").parse().unwrap())
                .collect(),
            commits: vec![[0; STACKS]],
            applied: vec![first; STACKS],
            history: vec![vec![0]; STACKS],
            records: Vec::new(),
            rules,
            environments,
            seen_ready: [None; STACKS],
            brought: [None; STACKS],
            undone: BTreeMap::new(),
            seen_unready: [None; STACKS],
            plans: SimulatedPlans::default(),
            allowed: BTreeSet::new(),
            calm: false,
        }
    }

    pub(super) fn push(&mut self) {
        let number = self.commits.len();
        let mut versions = *self.commits.last().unwrap();
        for version in &mut versions {
            if self.random.one_in(2) {
                *version = number;
            }
        }
        self.commits.push(versions);
    }

    /// The number in an id such as `s3/prod`.
    pub(super) fn index(&self, id: &StackId) -> usize {
        usize::from(id.as_str().as_bytes()[1] - b'0')
    }

    pub(super) fn covers(&self, run: &Run, id: &StackId) -> bool {
        let own = self.index(id) % self.environments;
        run.environment.is_none_or(|environment| environment == own)
    }

    fn clock(&self, run: &Run) -> ClockReading {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        ClockReading {
            local: at(self.time + run.skew),
            server: run.has_server.then(|| at(self.time)),
        }
    }

    pub(super) fn version(&self, stack: usize, serial: u64) -> usize {
        self.history[stack][usize::try_from(serial).unwrap() - 1]
    }

    /// Pending at a commit, without the stacks that have a newer one.
    pub(super) fn is_pending(&self, stack: usize, commit: usize) -> bool {
        let (applied, wanted) = (self.applied[stack].version, self.commits[commit][stack]);
        applied != wanted && applied <= commit
    }

    pub(super) fn changed(&self, commit: usize) -> BTreeMap<StackId, ChangedStack> {
        let mut changed = BTreeMap::new();
        for stack in (0..STACKS).filter(|stack| self.is_pending(*stack, commit)) {
            let now = RolloutStack {
                folder: RepoPath::root(),
                input: Some(Digest::of_bytes(&self.commits[commit][stack].to_be_bytes())),
                before: Some(self.applied[stack].serial),
            };
            let wave = wave_of(stack);
            changed.insert(self.ids[stack].clone(), ChangedStack { wave, stack: now });
        }
        changed
    }

    pub(super) fn newest(&self) -> Option<(u64, &Rc<RolloutRecord>)> {
        Some((self.records.len() as u64, self.records.last()?))
    }

    /// One step of a run; `false`: it has ended.
    pub(super) fn tick(&mut self, run: &mut Run) -> bool {
        match std::mem::replace(&mut run.todo, Todo::Look) {
            Todo::Look => self.look(run),
            Todo::Write(number, record) => {
                // Create if absent: of two runs one wins.
                if self.records.len() as u64 + 1 == number {
                    self.note_phase(&record);
                    self.records.push(record.into());
                    run.changed.clear();
                    run.wrote = Some((number, self.time));
                }
                true
            }
            Todo::Apply(number, record, mut stacks) => {
                if let Some(id) = stacks.pop() {
                    // Under the lease of the stack it is asked again whether the rollout is as it was.
                    if self.records.len() as u64 == number {
                        self.apply(run, &record, &id);
                    }
                    run.todo = Todo::Apply(number, record, stacks);
                }
                true
            }
            Todo::RollBack(number, record, mut stacks) => {
                if let Some(id) = stacks.pop() {
                    if self.records.len() as u64 == number {
                        self.roll_back(run, &record, &id);
                    }
                    run.todo = Todo::RollBack(number, record, stacks);
                }
                true
            }
        }
    }

    /// The contents that a record brings.
    pub(super) fn contents(record: &RolloutRecord) -> Contents {
        record
            .stacks()
            .map(|(_, id, stack)| (id.clone(), stack.input))
            .collect()
    }

    /// What a new record means for what has failed.
    fn note_phase(&mut self, record: &RolloutRecord) {
        let commit = number_of(&record.commit);
        let contents = || Self::contents(record);
        let before = self
            .records
            .last()
            .map(|before| (before.phase, number_of(&before.commit)));
        match record.phase {
            RolloutPhase::RollingBack | RolloutPhase::Stopped => {
                self.check_rolled_back(record);
                self.check_unready(record);
                self.undone.entry(commit).or_default().extend(contents());
                self.allowed.remove(&commit);
            }
            RolloutPhase::Done => {
                self.lift(record);
            }
            RolloutPhase::Applying if record.wave == 0 => {
                let is_new = before.is_none_or(|(phase, other)| {
                    phase.is_over() || phase == RolloutPhase::Stopped || other != commit
                });
                if is_new {
                    self.check_held(record);
                    self.allowed.insert(commit);
                    self.check_carried(record);
                }
            }
            RolloutPhase::Baking => self.check_applied(record),
            _ => {}
        }
        self.check_begun(record);
    }

    /// Whether the stacks that a run sees are ready.
    fn health(&mut self, run: &Run, record: &RolloutRecord) -> BTreeMap<StackId, StackReadiness> {
        let readiness = match self.random.below(if self.calm { 1 } else { 40 }) {
            0..32 => StackReadiness::Ready,
            39 => StackReadiness::Failed("crashed".to_owned()),
            _ => StackReadiness::Unready("progressing".to_owned()),
        };
        let mut health = BTreeMap::new();
        for id in record.current() {
            if self.covers(run, id) {
                if readiness == StackReadiness::Ready {
                    let stack = self.index(id);
                    self.seen_ready[stack] = Some(self.time);
                } else {
                    let stack = self.index(id);
                    self.seen_unready[stack].get_or_insert(self.time);
                }
                health.insert(id.clone(), readiness.clone());
            }
        }
        health
    }

    /// What the gate says.
    fn gates(&mut self, run: &mut Run, record: &RolloutRecord) -> BTreeMap<String, GateReading> {
        let reading = match self.random.below(if self.calm { 1 } else { 8 }) {
            0..=4 => GateReading::Pass(String::new()),
            5 => GateReading::Fail(String::new()),
            _ => GateReading::Unclear(String::new()),
        };
        let approval = self
            .approval(run, record)
            .map(|reading| (APPROVAL.to_owned(), reading));
        std::iter::once(("slo".to_owned(), reading))
            .chain(approval)
            .collect()
    }

    fn look(&mut self, run: &mut Run) -> bool {
        run.looks += 1;
        let now = self.clock(run);
        let newest = self.newest().map(|(number, record)| (number, Rc::clone(record)));
        let step = newest.as_ref().map(|(number, record)| {
            let commit = number_of(&record.commit);
            self.forget_failures(run, record);
            let is_back = record.phase == RolloutPhase::RollingBack;
            // Loops, for this is the most of the test's time without an optimiser.
            let mut pending = BTreeSet::new();
            for (id, one) in record.waves.iter().flatten() {
                let stack = self.index(id);
                let is_pending = match one.before.filter(|_| is_back) {
                    Some(before) => self.version(stack, before) != self.applied[stack].version,
                    None => self.is_pending(stack, commit),
                };
                if is_pending {
                    pending.insert(id.clone());
                }
            }
            let is_measured = matches!(record.phase, RolloutPhase::Baking | RolloutPhase::Gate);
            let (health, gates) = if is_measured {
                (Some(self.health(run, record)), self.gates(run, record))
            } else {
                (None, BTreeMap::new())
            };
            let wrote = run.wrote.filter(|(wrote, _)| wrote == number);
            let watched = wrote.map(|(_, at)| Duration::from_secs(u64::try_from(self.time - at).unwrap()));
            step(
                record,
                &RolloutFacts {
                    rules: Some(&self.rules),
                    pending: &pending,
                    failed: &run.failed,
                    changed: &run.changed,
                    health: health.as_ref(),
                    gates: &gates,
                    planned: run
                        .planned
                        .as_ref()
                        .filter(|(since, _)| *since == record.since)
                        .map(|(_, own)| own),
                    now,
                    watched,
                },
            )
        });
        match (step, newest) {
            (Some(RolloutStep::Advance(next)), Some((number, _))) => {
                run.todo = Todo::Write(number + 1, next);
                true
            }
            (Some(RolloutStep::Apply { stacks, at_once }), Some((number, record))) => {
                let now = stacks.into_iter().take(at_once);
                let own: Vec<_> = now.filter(|id| self.covers(run, id)).collect();
                // Another job applies the others.
                let goes_on = run.looks < 40 && !own.is_empty();
                run.todo = Todo::Apply(number, record, own);
                goes_on
            }
            (Some(RolloutStep::RollBack(stacks)), Some((number, record))) => {
                let own: Vec<_> = stacks.into_iter().filter(|id| self.covers(run, id)).collect();
                let goes_on = run.looks < 40 && !own.is_empty();
                run.todo = Todo::RollBack(number, record, own);
                goes_on
            }
            // A short bake is waited for inside of the run.
            (Some(RolloutStep::Wait(_)), _) => !self.calm && run.looks < 40 && !self.random.one_in(4),
            (None | Some(RolloutStep::Hold | RolloutStep::End), newest) => {
                let changed = self.changed(run.head);
                let number = newest.as_ref().map_or(1, |(number, _)| number + 1);
                let prior = newest.map(|(_, record)| record);
                let wave_of = |id: &StackId, _: &RolloutStack| Some(wave_of(self.index(id)));
                let start = RolloutStart {
                    name: "web",
                    commit: &commit_id(run.head),
                    rules: &self.rules,
                    changed: &changed,
                    prior: prior.as_deref(),
                    now,
                };
                match begin(&start, wave_of) {
                    Some(record) => {
                        run.todo = Todo::Write(number, Box::new(record));
                        true
                    }
                    None => false,
                }
            }
            (Some(_), None) => unreachable!("a step is of a record"),
        }
    }

    fn apply(&mut self, run: &mut Run, record: &RolloutRecord, id: &StackId) {
        let (seed, stack, commit) = (self.seed, self.index(id), number_of(&record.commit));
        if !self.is_pending(stack, commit) {
            return;
        }
        // What must hold at each write to the infrastructure.
        let newest = self
            .records
            .last()
            .map(|newest| (newest.phase, newest.wave, newest.paused));
        let of_wave = (RolloutPhase::Applying, wave_of(stack), false);
        assert_eq!(
            newest,
            Some(of_wave),
            "seed {seed}: {id} goes, and it is not its wave that goes"
        );
        for (wave, other, _) in record.stacks() {
            let at = self.index(other);
            if wave > wave_of(stack) {
                let is_early = self.applied[at].version == commit && self.commits[commit][at] == commit;
                assert!(
                    !is_early || self.applied[at].at < self.time,
                    "seed {seed}: two waves at once"
                );
            }
            if wave < wave_of(stack) {
                assert!(
                    !self.is_pending(at, commit),
                    "seed {seed}: {id} goes before {other} has the commit"
                );
                let seen = self.seen_ready[at]
                    .is_some_and(|seen| seen - self.applied[at].at >= BAKE.as_secs() as i64);
                assert!(
                    seen,
                    "seed {seed}: nobody saw {other} ready after its bake, and {id} goes"
                );
                let baked = self.time - self.applied[at].at;
                assert!(
                    baked >= BAKE.as_secs() as i64,
                    "seed {seed}: {other} baked {baked} s before {id}"
                );
            }
        }
        assert!(
            self.allowed.contains(&commit),
            "seed {seed}: {id} gets a commit that failed"
        );
        if !self.passes_approval(run, record, id) {
            return;
        }
        if !self.calm && self.random.one_in(12) {
            run.failed.insert(id.clone(), Self::broken(record));
            return;
        }
        self.set(stack, self.commits[commit][stack]);
        self.brought[stack] = Some(self.commits[commit][stack]);
    }

    fn roll_back(&mut self, run: &mut Run, record: &RolloutRecord, id: &StackId) {
        let stack = self.index(id);
        let before = record
            .failing()
            .find(|(other, _)| *other == id)
            .and_then(|(_, one)| one.before)
            .unwrap();
        if !self.calm && self.random.one_in(12) {
            run.failed.insert(id.clone(), Self::broken(record));
            return;
        }
        self.set(stack, self.version(stack, before));
        self.brought[stack] = None;
    }

    fn set(&mut self, stack: usize, version: usize) {
        let applied = &mut self.applied[stack];
        applied.version = version;
        applied.serial += 1;
        applied.at = self.time;
        self.seen_ready[stack] = None;
        self.seen_unready[stack] = None;
        self.history[stack].push(version);
    }
}

/// The generator of a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The number of stacks.
pub(super) const STACKS: usize = 4;
/// The gate that asks for an approval.
pub(super) const APPROVAL: &str = "go";

/// What one digest stands for: the commit, the wave before the approved one, and its plans.
pub(super) type ApprovedPlans = (usize, usize, BTreeMap<StackId, Digest>);

/// The plans of stacks, and what people approved of them.
#[derive(Default)]
pub(super) struct SimulatedPlans {
    /// How many times something else changed what each stack finds: its plan is another one then.
    pub(super) changes: [u64; STACKS],
    pub(super) approved: BTreeMap<Digest, ApprovedPlans>,
    pub(super) given: Vec<Digest>,
    /// Of each stack, the plan that was applied last after an approval.
    pub(super) applied: BTreeMap<StackId, Digest>,
}
