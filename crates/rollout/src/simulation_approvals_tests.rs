//! Approvals in the simulation: plans that change by themselves, people who approve what the record shows, and what
//! must hold when an approved plan is applied.

use konverge_base::model::{
    Digest, StackId,
    rollout::{RolloutPhase, RolloutRecord},
};

use super::{
    simulation_world_tests::{APPROVAL, STACKS},
    simulation_world_tests::{Run, SimulatedWorld, number_of, wave_of},
    *,
};

impl SimulatedWorld {
    fn asks_for_approval(&self, wave: usize) -> bool {
        let gates = self.rules.waves.get(wave).map_or(&[][..], |wave| &wave.gates);
        gates.iter().any(|gate| gate.name == APPROVAL)
    }

    fn nothing_to_do(stack: usize) -> Digest {
        Digest::of_bytes(&stack.to_be_bytes())
    }

    /// The digest of the plan of a stack now.
    fn plan(&self, stack: usize, commit: usize) -> Digest {
        if self.is_pending(stack, commit) {
            let parts = [
                stack as u64,
                self.commits[commit][stack] as u64,
                self.plans.changes[stack],
            ];
            Digest::of_bytes(parts.map(u64::to_be_bytes).as_flattened())
        } else {
            Self::nothing_to_do(stack)
        }
    }

    /// The plan of a stack changes by itself.
    pub(super) fn change_plan(&mut self) {
        let stack = self.random.below(STACKS);
        self.plans.changes[stack] += 1;
    }

    /// Somebody approves what the record shows, if it shows all plans.
    pub(super) fn approve(&mut self) {
        let Some(record) = self.records.last() else { return };
        let plans = NextPlans::new(record, None);
        let asks = record.phase == RolloutPhase::Gate && self.asks_for_approval(record.wave);
        if let Some(digest) = plans.approval(record, APPROVAL).filter(|_| asks) {
            let stands_for = (number_of(&record.commit), record.wave, plans.digests);
            let before = self.plans.approved.insert(digest, stands_for.clone());
            assert!(before.is_none_or(|before| before == stands_for));
            self.plans.given.retain(|other| *other != digest);
            self.plans.given.push(digest);
        }
    }

    /// What the gate says to a run, if it asks for an approval.
    pub(super) fn approval(&mut self, run: &mut Run, record: &RolloutRecord) -> Option<GateReading> {
        if !self.asks_for_approval(record.wave) || record.phase != RolloutPhase::Gate {
            return None;
        }
        if !self.calm && self.random.one_in(16) {
            return Some(GateReading::Unapproved("a plan cannot be made".to_owned()));
        }
        if run
            .planned
            .as_ref()
            .is_none_or(|(since, _)| *since != record.since)
        {
            let commit = number_of(&record.commit);
            let own = record.waves.get(record.wave + 1).into_iter().flatten();
            let own = own.filter(|(id, _)| self.covers(run, id));
            let own = own.map(|(id, _)| (id.clone(), self.plan(self.index(id), commit)));
            run.planned = Some((record.since, own.collect()));
        }
        let own = run.planned.as_ref().map(|(_, own)| own);
        Some(match NextPlans::new(record, own).approval(record, APPROVAL) {
            None => GateReading::Unclear("a job has not planned yet".to_owned()),
            Some(digest) if run.given.contains(&digest) => GateReading::Approved(digest),
            Some(_) => GateReading::Unapproved(String::new()),
        })
    }

    /// What must hold when a plan is applied, and the fence before that: `false` if the plan is not the approved one.
    pub(super) fn passes_approval(&mut self, run: &mut Run, record: &RolloutRecord, id: &StackId) -> bool {
        let (seed, stack, commit) = (self.seed, self.index(id), number_of(&record.commit));
        let (plan, approved) = (self.plan(stack, commit), record.approved_now());
        if !approved.is_empty() && approved.get(id) != Some(&plan) {
            run.changed.insert(id.clone());
            return false;
        }
        let Some(before) = wave_of(stack)
            .checked_sub(1)
            .filter(|before| self.asks_for_approval(*before))
        else {
            return true;
        };
        let wanted = (commit, before, approved);
        let mut given = record
            .approvals
            .iter()
            .filter_map(|digest| self.plans.approved.get(digest));
        assert!(
            given.any(|given| *given == wanted),
            "seed {seed}: nobody approved the plan of {id} and of the others"
        );
        assert!(
            wanted.2.keys().eq(record.current()),
            "seed {seed}: the approval is not for the whole wave"
        );
        self.plans.applied.insert(id.clone(), plan);
        true
    }

    /// What must hold when all stacks of a wave have the commit: the approved plans are the applied ones.
    pub(super) fn check_applied(&self, record: &RolloutRecord) {
        for (id, plan) in record.approved_now() {
            let is_applied = self.plans.applied.get(&id) == Some(&plan);
            let had_nothing_to_do = plan == Self::nothing_to_do(self.index(&id));
            assert!(
                is_applied || had_nothing_to_do,
                "seed {}: another plan of {id} was applied than the approved one",
                self.seed
            );
        }
    }

    /// Whether approved plans were applied, and whether an approval was asked again because a plan had changed.
    pub(super) fn approvals(&self) -> [bool; 2] {
        [
            !self.plans.applied.is_empty(),
            self.records
                .iter()
                .any(|record| record.begun_waves > record.wave + 1),
        ]
    }
}
