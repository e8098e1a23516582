//! The history of a simulated world: runs that start, people who type commands, kills, and in the end runs one after
//! another.

use jiff::Timestamp;
use konverge_base::model::rollout::{ClockReading, RolloutPhase, RolloutRecord};

use super::{
    simulation_world_tests::{Run, SimulatedWorld, Todo, number_of},
    *,
};
use std::collections::{BTreeMap, BTreeSet};

impl SimulatedWorld {
    fn start(&mut self) -> Run {
        // A late trigger is of an older commit.
        let newest = self.commits.len() - 1;
        let head = if self.calm || !self.random.one_in(4) {
            newest
        } else {
            self.random.below(newest + 1)
        };
        let jumps = [0, 3600, -3600, 30 * 86400, -30 * 86400];
        let jump = self.random.below(jumps.len());
        let given = if self.calm || self.random.one_in(2) {
            self.plans.given.last().copied().into_iter().collect()
        } else {
            Vec::new()
        };
        let environment = match self.environments {
            1 => None,
            count => Some(self.random.below(count)),
        };
        Run {
            head,
            environment,
            todo: Todo::Look,
            failed: BTreeMap::new(),
            followed: None,
            changed: BTreeSet::new(),
            planned: None,
            given,
            wrote: None,
            skew: if self.calm { 0 } else { jumps[jump] },
            has_server: self.calm || !self.random.one_in(4),
            looks: 0,
        }
    }

    /// Somebody types a command.
    fn interfere(&mut self, wanted: RolloutCommand) {
        let now = ClockReading {
            local: Timestamp::from_second(self.time).unwrap(),
            server: None,
        };
        let Some((_, record)) = self.newest() else { return };
        let commit = number_of(&record.commit);
        let (has_stopped, is_over) = (record.phase == RolloutPhase::Stopped, record.phase.is_over());
        if let Ok(next) = command(record, wanted, "by hand", now) {
            if wanted == RolloutCommand::Resume && has_stopped {
                self.lift(&next);
                self.allowed.insert(commit);
            }
            if is_over {
                self.undone.clear();
            }
            if wanted == RolloutCommand::Abort {
                self.undone
                    .entry(commit)
                    .or_default()
                    .extend(Self::contents(&next));
                self.allowed.remove(&commit);
            }
            self.records.push(next.into());
        }
    }

    /// Somebody edits the rules, and restores them later: a run has stopped the rollout.
    fn edit(&mut self) {
        let Some((_, record)) = self.newest().filter(|(_, record)| !record.phase.is_over()) else {
            return;
        };
        if record.phase != RolloutPhase::RollingBack {
            let stopped = RolloutRecord {
                phase: RolloutPhase::Stopped,
                ..(**record).clone()
            };
            self.records.push(stopped.into());
        }
    }

    pub(super) fn storm(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..120 {
            self.time += self.random.below(200) as i64;
            match self.random.below(40) {
                0 => self.push(),
                1 => self.interfere(RolloutCommand::Pause),
                2 | 3 => self.interfere(RolloutCommand::Resume),
                4 if self.random.one_in(4) => self.interfere(RolloutCommand::Abort),
                5..=9 if runs.len() < 3 => {
                    let run = self.start();
                    runs.push(run);
                }
                // A kill, between any two writes.
                10 | 11 if !runs.is_empty() => {
                    let at = self.random.below(runs.len());
                    runs.remove(at);
                }
                13 => self.change_plan(),
                14..=16 => self.approve(),
                12 if !runs.is_empty() => {
                    let at = self.random.below(runs.len());
                    runs[at].skew += 86400;
                }
                _ if !runs.is_empty() => {
                    let at = self.random.below(runs.len());
                    let mut run = runs.remove(at);
                    if self.tick(&mut run) {
                        runs.push(run);
                    }
                }
                _ => {}
            }
        }
    }

    /// Runs one after another, with clocks that are right.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        for round in 0..60 * self.environments {
            self.interfere(RolloutCommand::Resume);
            self.approve();
            let mut run = self.start();
            while self.tick(&mut run) {
                self.time += 30;
                // Plans change after their approval, and before they are applied.
                if round < 30 && self.random.one_in(4) {
                    self.change_plan();
                }
                if round < 30 && self.random.one_in(64) {
                    self.edit();
                }
            }
            self.time += 700;
            if self.changed(self.commits.len() - 1).is_empty()
                && self.newest().is_none_or(|(_, record)| record.phase.is_over())
            {
                return;
            }
        }
        let newest = self
            .newest()
            .map(|(number, record)| (number, record.phase, record.wave, record.why.clone()));
        panic!("seed {}: no end: {newest:?}", self.seed);
    }
}
