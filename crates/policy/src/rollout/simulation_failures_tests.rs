//! What failed in the simulation: what must hold when a rollback has ended, when the next rollout begins, and of the failures
//! that a run remembers.

use std::rc::Rc;

use konverge_base::model::rollout::{RolloutPhase, RolloutRecord};

use super::{
    simulation_plans_tests::STACKS,
    simulation_world_tests::{Run, SimulatedWorld, wave_of},
};

impl SimulatedWorld {
    /// What must hold when a rollback has ended: nothing of the failed wave and of later ones has the commit.
    pub(super) fn check_rolled_back(&self, record: &RolloutRecord) {
        if !record.why.ends_with("have what they had before") {
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
