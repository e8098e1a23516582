//! What failed in the simulation: what must hold when a rollback has ended, when the next rollout begins, and of the
//! failures that a run remembers.

use std::rc::Rc;

use konverge_base::model::{
    Digest, StackId,
    rollout::{RolloutPhase, RolloutRecord},
};

use super::{
    simulation_world_tests::STACKS,
    simulation_world_tests::{Run, SimulatedWorld, number_of, wave_of},
};

impl SimulatedWorld {
    /// The contents of a record are no failure any more.
    pub(super) fn lift(&mut self, record: &RolloutRecord) {
        let contents = Self::contents(record);
        for undone in self.undone.values_mut() {
            undone.retain(|content| !contents.contains(content));
        }
        self.undone.retain(|_, undone| !undone.is_empty());
    }

    /// What must hold when a rollout begins: it brings something, and nothing of it failed, unless the commit has
    /// something newer for a stack of each rollout that failed with it.
    pub(super) fn check_held(&self, record: &RolloutRecord) {
        let (seed, commit) = (self.seed, number_of(&record.commit));
        let changed = self.changed(commit);
        let is_brought = |id: &StackId| changed.contains_key(id);
        assert!(
            record.stacks().any(|(_, id, _)| is_brought(id)),
            "seed {seed}: commit {commit} begins, and brings nothing"
        );
        for content in Self::contents(record).iter().filter(|(id, _)| is_brought(id)) {
            for undone in self.undone.values().filter(|undone| undone.contains(content)) {
                let is_newer = |(id, _): &(StackId, Option<Digest>)| {
                    let now = changed.get(id).map(|changed| changed.stack.input);
                    now.is_some_and(|now| !undone.contains(&(id.clone(), now)))
                };
                assert!(
                    undone.iter().any(is_newer),
                    "seed {seed}: {} gets again with commit {commit} what failed, and nothing lifted that",
                    content.0
                );
            }
        }
    }

    /// What must hold when a rollout fails because a stack is unready: a job saw that an hour ago too.
    pub(super) fn check_unready(&self, record: &RolloutRecord) {
        if !record.why.starts_with("not ready")
            || record.phase != RolloutPhase::Stopped && !self.rules.rolls_back
        {
            return;
        }
        let seen = record
            .current()
            .filter_map(|id| self.seen_unready[self.index(id)]);
        let first = seen.min().map(|first| self.time - first);
        assert!(
            first.is_some_and(|first| first >= 3600),
            "seed {}: it fails {first:?} s after a job saw it unready first",
            self.seed
        );
    }

    /// What must hold when a rollback has ended: nothing of the failed wave and of later ones has the commit.
    pub(super) fn check_rolled_back(&self, record: &RolloutRecord) {
        if !record.why.ends_with("are rolled back") {
            return;
        }
        for (wave, id, stack) in record.stacks() {
            let at = self.index(id);
            let had = stack.before.map(|before| self.version(at, before));
            let is_back = self.brought[at].is_none() || Some(self.applied[at].version) == had;
            assert!(
                wave < record.wave || is_back,
                "seed {}: {id} still has the commit after the rollback",
                self.seed
            );
        }
    }

    /// What must hold of each record: the waves that brought something have begun.
    pub(super) fn check_begun(&self, record: &RolloutRecord) {
        for (at, brought) in self.brought.iter().enumerate() {
            assert!(
                brought.is_none() || wave_of(at) < record.begun_waves,
                "seed {}: s{at} has the commit, and its wave has not begun",
                self.seed
            );
        }
    }

    /// What must hold when a rollout begins: what an unfinished one brought belongs to it.
    pub(super) fn check_carried(&mut self, record: &RolloutRecord) {
        let is_done = |before: &Rc<RolloutRecord>| before.phase == RolloutPhase::Done;
        let is_known = |at: &usize| record.stacks().any(|(_, id, _)| *id == self.ids[*at]);
        let brought = (0..STACKS).filter(|at| self.brought[*at].is_some());
        let lost: Vec<_> = brought.filter(|at| !is_known(at)).collect();
        assert!(
            lost.is_empty() || self.records.last().is_none_or(is_done),
            "seed {}: the next rollout forgets the stacks {lost:?}, which an unfinished one has begun",
            self.seed
        );
        self.brought = [None; STACKS];
    }

    /// What failed in another phase does not fail this one.
    pub(super) fn forget_failures(&self, run: &mut Run, record: &Rc<RolloutRecord>) {
        let followed = run.followed.replace(Rc::clone(record));
        if !followed.is_some_and(|followed| followed.is_in_phase_of(record)) {
            run.failed.clear();
        }
        for (id, why) in &run.failed {
            let seed = self.seed;
            assert_eq!(
                *why,
                Self::broken(record),
                "seed {seed}: {id} failed in another phase"
            );
        }
    }

    /// What a failure says: in which phase and with which commit.
    pub(super) fn broken(record: &RolloutRecord) -> String {
        format!("{} {}", record.phase, record.commit)
    }
}
